#include "passes/memory_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/layers.h"
#include "analysis/recompute_tags.h"
#include "base/memory_text.h"
#include "cost/memory.h"
#include "partition/budget_steps.h"
#include "passes/recompute.h"
#include "passes/record.h"

namespace epweave {
namespace {

constexpr double kMiB = 1 << 20;

bool is_tagged(const Graph& graph, const Node& node) {
  return node.kind == NodeKind::kCall && !node.is_backward() && !is_behind_layers(graph.text(node.module));
}

// What stands in backward stays there: a policy decides about forward calls.
Joint read_step(const Graph& graph) {
  Joint joint = read_joint(graph);
  for (NodeId id : graph.step().order)
    if (graph.step().nodes[id].is_backward() && !joint.forward(id)) joint.is_backward[id.index()] = 1;
  return joint;
}

Graph write_tags(const Graph& graph, const Cut& cut) {
  Graph result = graph;
  const RecomputeTags tags(result);
  const StringId pass = result.intern("memory-policy"), again = result.intern("cheapest for the budget"),
                 kept = result.intern("dearer to compute again, or not needed");
  for (NodeId id : result.step().order) {
    Node& node = result.step().nodes[id];
    if (node.kind != NodeKind::kCall || node.is_backward()) continue;
    const bool is_again = cut.recomputes(id);
    StringId word;
    if (is_tagged(graph, node)) word = is_again ? tags.prefer_recompute : tags.must_save;
    if (node.recompute == word) continue;
    node.recompute = word;
    if (word) record_specialized(*result.context, node, pass, is_again ? again : kept);
  }
  return result;
}

// Of the device that needs most.
std::int64_t find_step_peak(const Graph& graph) {
  Extents extents(graph);
  std::int64_t peak = 0;
  for (const DeviceMemory& device : estimate_memory(graph, extents).devices)
    peak = std::max(peak, device.peak);
  return peak;
}

std::string state(const BudgetStep& step) {
  const CutTotals& totals = step.cut.totals;
  const double bound = step.cut.bound_seconds;
  return fmt::format(
      "{} are saved, peak {}; {:.4f} ms computed again, {:.4f} at least for as few bytes "
      "(gap {:.1f} %)",
      memory_text(totals.bytes), memory_text(step.peak_bytes), totals.seconds * 1e3, bound * 1e3,
      bound > 0 ? (totals.seconds / bound - 1) * 100 : 0);
}

// Whether the first is what to take, given that both are within the budget.
bool is_better(const BudgetStep& step, const BudgetStep& other, bool is_by_peak) {
  const auto peak = std::pair(step.peak_bytes, step.cut.totals.seconds);
  const auto seconds = std::pair(step.cut.totals.seconds, step.peak_bytes);
  return is_by_peak ? seconds < std::pair(other.cut.totals.seconds, other.peak_bytes)
                    : peak < std::pair(other.peak_bytes, other.cut.totals.seconds);
}

class BudgetSearch {
 public:
  BudgetSearch(const Graph& graph, const PolicyBudget& budget)
      : graph_(graph),
        budget_(budget),
        joint_(read_step(graph)),
        costs_(price_values(graph, joint_, Cluster{})) {}

  BudgetStep run() {
    ExactCuts cuts = make_cuts(false), cuts_by_layer = make_cuts(true);
    for (ExactCuts* each : {&cuts, &cuts_by_layer}) budget_.peak_mib ? fit_peak(*each) : fit_seconds(*each);
    if (!chosen_) refuse();
    const CutTotals& totals = chosen_->cut.totals;
    cuts.cut_within(
        std::max(totals.bytes, cuts.smallest().totals.bytes));  // finds the lambda that bounds best
    chosen_->cut.bound_seconds = std::min(cuts.find_bound(totals.bytes), totals.seconds);
    return std::move(*chosen_);
  }

 private:
  ExactCuts make_cuts(bool keeps_layers) const {
    const Regather regather = budget_.reshard == Reshard::kNever ? Regather::kNever : Regather::kAlways;
    return {graph_, joint_, costs_, {.regather = regather, .keeps_head = true, .keeps_layers = keeps_layers}};
  }

  std::int64_t measure(const BudgetCut& cut) const {
    return find_step_peak(recompute(write_tags(graph_, cut.cut)).graph);
  }

  // Steps compute more again from one to the next: the first that fits computes least.
  void fit_peak(ExactCuts& cuts) {
    const auto fits = [&](const BudgetStep& step) {
      return static_cast<double>(step.peak_bytes) <= *budget_.peak_mib * kMiB;
    };
    const auto measure_cut = [&](const BudgetCut& cut) { return measure(cut); };
    std::optional<BudgetStep> before;  // the last that did not fit
    const BudgetStep found = walk_budgets(cuts, measure_cut, [&](int, const BudgetStep& held) {
      if (!fits(held)) before = held;
      return fits(held);
    });
    if (fits(found)) {
      consider(found);
      if (before) {
        const BudgetStep finer = walk_between(cuts, *before, found, measure_cut, fits);
        if (fits(finer)) consider(finer);
      }
    }
    if (!nearest_ || is_better(found, *nearest_, false)) nearest_ = found;
  }

  void fit_seconds(ExactCuts& cuts) {
    const double seconds = budget_.recompute_ms.value_or(0) * 1e-3;
    const auto measure_cut = [&](const BudgetCut& cut) { return measure(cut); };
    const auto fits = [&](const BudgetStep& step) { return step.cut.totals.seconds <= seconds; };
    std::optional<BudgetStep> last;  // that fits
    const BudgetStep beyond = walk_budgets(cuts, measure_cut, [&](int, const BudgetStep& held) {
      if (fits(held)) last = held;
      return !fits(held);
    });
    if (!last) return;
    consider(*last);
    if (fits(beyond)) return;
    walk_between(cuts, *last, beyond, measure_cut, [&](const BudgetStep& held) {
      if (fits(held)) consider(held);
      return !fits(held);
    });
  }

  void consider(const BudgetStep& step) {
    if (!chosen_ || is_better(step, *chosen_, budget_.peak_mib.has_value())) chosen_ = step;
  }

  [[noreturn]] void refuse() const {
    if (budget_.peak_mib) refuse_peak();
    throw PassError(
        "memory-policy.budget",
        fmt::format("the budget is {:.4f} ms of recomputation; values that cannot be saved take more",
                    budget_.recompute_ms.value_or(0)),
        {}, "give a larger budget");
  }

  // With what the least budget gives: finer steps may find less to compute again.
  [[noreturn]] void refuse_peak() const {
    PolicyBudget least = budget_;
    least.peak_mib = std::ceil(static_cast<double>(nearest_->peak_bytes) / kMiB * 100) / 100;
    const BudgetStep given = BudgetSearch(graph_, least).run();
    throw PassError(
        "memory-policy.budget",
        fmt::format("the budget is a peak of {}; the least found is {}, which computes {:.4f} ms again",
                    memory_text(*budget_.peak_mib * kMiB), memory_text(given.peak_bytes),
                    given.cut.totals.seconds * 1e3),
        {}, fmt::format("give a larger budget: peak-mib={:.2f}", *least.peak_mib));
  }

  const Graph& graph_;
  const PolicyBudget& budget_;
  const Joint joint_;
  const ValueCosts costs_;
  std::optional<BudgetStep> chosen_, nearest_;
};

}  // namespace

PassResult tag_for_budget(const Graph& graph, const PolicyBudget& budget) {
  const BudgetStep chosen = BudgetSearch(graph, budget).run();
  PassResult result{write_tags(graph, chosen.cut.cut)};
  result.notes = {state(chosen)};
  return result;
}

}  // namespace epweave
