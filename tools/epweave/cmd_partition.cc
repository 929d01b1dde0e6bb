#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "analysis/collectives.h"
#include "analysis/done_again.h"
#include "analysis/recompute_tags.h"
#include "analysis/seeds.h"
#include "base/counted.h"
#include "base/memory_text.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "cost/live_bytes.h"
#include "cost/simulate.h"
#include "cost/step_model.h"
#include "kept_report.h"
#include "ops/memory_traits.h"
#include "ops/op.h"
#include "partition/budget_steps.h"
#include "partition/exact_cut.h"
#include "partition/halves.h"
#include "partition/region_budget.h"
#include "passes/dce.h"
#include "rewrite_check.h"

namespace epweave::cli {
namespace {

constexpr double kMiB = 1 << 20;

// What --budget says: a share of the bytes that no recomputation holds, bytes, or seconds of
// recomputation.
struct Budget {
  enum class Kind : std::uint8_t { kNone, kShare, kBytes, kSeconds } kind = Kind::kNone;
  double value = 0;
};

Budget parse_budget(const std::optional<std::string>& given) {
  if (!given) return {};
  const std::string& text = *given;
  Budget budget{Budget::Kind::kShare, 0};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, budget.value);
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  const auto scale = [&](Budget::Kind kind, double factor) {
    budget.kind = kind;
    budget.value *= factor;
  };
  bool is_known = true;
  if (unit == "MiB") {
    scale(Budget::Kind::kBytes, kMiB);
  } else if (unit == "GiB") {
    scale(Budget::Kind::kBytes, 1024 * kMiB);
  } else if (unit == "ms") {
    scale(Budget::Kind::kSeconds, 1e-3);
  } else {
    is_known = unit.empty() && budget.value <= 1;
  }
  if (error != std::errc() || !is_known || !(budget.value >= 0) || budget.value > 1e18)
    throw UsageError(fmt::format(
        "--budget: '{}' is no budget\n  expected a share from 0 to 1, or an amount in MiB, GiB or "
        "ms, as in --budget 26000MiB, --budget 23.5ms",
        text));
  return budget;
}

// The bytes that forward, then backward hold at most, without the inputs of the step.
std::int64_t find_peak_of(const Halves& halves, const CutTotals& totals) {
  std::int64_t peak = 0;
  for (const Graph* half : {&halves.forward, &halves.backward}) {
    const StepModel model = model_step(*half, Cluster{});
    const std::int64_t own = find_peak(model, given_order(model)).bytes - model.input_bytes;
    peak = std::max(peak, own + (half == &halves.backward ? totals.bytes : 0));
  }
  return peak;
}

class Partition {
 public:
  Partition(const PartitionOptions& options, Console& console)
      : options_(options),
        console_(console),
        budget_text_(options.budget),
        budget_from_(options.budget ? "--budget" : ""),
        budget_(parse_budget(options.budget)),
        graph_(read_joint_input()),
        joint_(read_joint(graph_, options.policy == "min-cut" ? Waits::kAll : Waits::kOfForward)),
        costs_(price_values(graph_, joint_, Cluster{})),
        cuts_(graph_, joint_, costs_,
              {.regather = options.reshard == "never" ? Regather::kNever : Regather::kAlways,
               .keeps_heavy = options.policy == "exact" && budget_.kind == Budget::Kind::kNone}) {}

  int run() {
    take_region_budget();
    const BudgetCut chosen = choose();
    const Halves halves = split_joint(graph_, joint_, chosen.cut);
    require_proof(halves);
    const std::int64_t peak = find_peak_of(halves, chosen.totals);
    const Json report = write_report(chosen, peak);
    OutputFile forward(options_.forward), backward(options_.backward);
    encode_output(halves.forward, {.path = options_.forward}, forward);
    encode_output(halves.backward, {.path = options_.backward}, backward);
    std::optional<OutputFile> report_file;
    if (!options_.report.empty()) {
      report_file.emplace(options_.report);
      report_file->write(report_text(report));
    }
    forward.commit();
    backward.commit();
    if (report_file) report_file->commit();
    if (console_.json()) console_.print(report_text(report));
    if (!console_.json()) {
      const std::string bound =
          has_bound(chosen) ? fmt::format(" (at least {:.4f} for as few bytes)", chosen.bound_seconds * 1e3)
                            : "";
      console_.info(fmt::format("{} saved ({} gathered), {:.4f} ms computed again{}, peak {}",
                                memory_text(chosen.totals.bytes), memory_text(chosen.totals.gathered),
                                chosen.totals.seconds * 1e3, bound, memory_text(peak)));
    }
    return kFine;
  }

 private:
  Graph read_joint_input() {
    if (budget_.kind != Budget::Kind::kNone && options_.policy == "tags")
      throw UsageError(
          "--budget: policy 'tags' takes no budget\n  expected --policy exact or min-cut beside --budget");
    const bool is_share = budget_.kind == Budget::Kind::kNone || budget_.kind == Budget::Kind::kShare;
    if (options_.policy == "min-cut" && !is_share)
      throw UsageError(
          fmt::format("--budget: policy 'min-cut' takes a share from 0 to 1, as PyTorch does, not '{}'\n  "
                      "expected --policy exact beside an amount",
                      *options_.budget));
    Graph graph = dce(read_sound_input(options_.input), Assertions::kKept);
    mark_tangents(graph, options_.tangents);
    return options_.policy == "tags" ? graph : merge_equal_calls(graph);
  }

  // PyTorch's partitioner takes what the step's code asks for; --budget says otherwise.
  void take_region_budget() {
    if (options_.policy != "min-cut" || budget_.kind != Budget::Kind::kNone) return;
    const std::optional<double> share = find_region_budget(graph_, joint_);
    if (!share) return;
    budget_ = {Budget::Kind::kShare, *share};
    budget_text_ = fmt::format("{}", *share);
    budget_from_ = "region_activation_memory_budget";
  }

  BudgetCut choose() {
    if (options_.policy == "exact") {
      BudgetCut chosen = choose_exact();
      least_bytes_ = cuts_.smallest().totals.bytes;
      return chosen;
    }
    const bool has_share = budget_.kind == Budget::Kind::kShare;
    BudgetCut chosen = options_.policy == "tags" ? price(cut_by_tags(graph_, joint_))
                       : has_share               ? choose_within_share()
                                                 : price(cut_as_torch(graph_, joint_));
    // What these bytes need at least, if whole parameters are not among them. None is known for a
    // choice that exact cuts cannot make, as to compute an exchange again.
    const std::int64_t activations = chosen.totals.bytes - chosen.totals.gathered;
    if (!cuts_.has_cut() || cuts_.smallest().totals.bytes > activations) return chosen;
    cuts_.cut_within(activations);
    if (const double bound = cuts_.find_bound(activations); bound <= chosen.totals.seconds)
      chosen.bound_seconds = bound;
    return chosen;
  }

  BudgetCut price(Cut cut) const {
    const CutTotals totals = add_up(graph_, cut, costs_);
    return {.cut = std::move(cut), .totals = totals};
  }

  std::int64_t measure(const BudgetCut& cut) const {
    return find_peak_of(split_joint(graph_, joint_, cut.cut), cut.totals);
  }

  // PyTorch's choice stands as it is. What its estimates of single values miss is said.
  BudgetCut choose_within_share() {
    std::vector<double> shares = {budget_.value};
    for (int step = 0; step < kBudgetSteps; ++step)
      if (const double share = 1 - static_cast<double>(step) / kBudgetSteps; share > budget_.value)
        shares.push_back(share);
    std::vector<Cut> cuts = cut_as_torch(graph_, joint_, shares);
    BudgetCut chosen = price(std::move(cuts.front()));
    const std::int64_t most = (cuts.size() > 1 ? price(cuts[1]) : chosen).totals.bytes;
    budget_bytes_ = static_cast<std::int64_t>(budget_.value * static_cast<double>(most));
    if (const std::int64_t held = chosen.totals.bytes; held > *budget_bytes_)
      refused_.push_back(fmt::format(
          "to save less than {}: {}", memory_text(held),
          budget_.value <= 0 ? "backward needs as much" : "PyTorch saves as much for this share"));
    warn_if_missed(chosen.totals.bytes);
    std::int64_t peak = measure(chosen);
    double lower = budget_.value;  // a larger share with the least peak
    const std::int64_t own = peak;
    for (std::size_t i = 1; i < cuts.size(); ++i)
      if (const std::int64_t other = measure(price(std::move(cuts[i]))); other < peak) {
        peak = other;
        lower = shares[i];
      }
    if (peak < own)
      console_.warn(
          fmt::format("what is computed again is alive in backward, so that the peak is {}; with --budget "
                      "{:.2f} it is {}",
                      memory_text(own), lower, memory_text(peak)));
    warn_of_unlisted(chosen.cut);
    return chosen;
  }

  // Whether more is known than that as few bytes take no less than nothing: not of fewer than any
  // exact cut saves.
  static bool has_bound(const BudgetCut& chosen) {
    return chosen.bound_seconds > 0 || chosen.totals.seconds == 0;
  }

  // Products and attention that PyTorch's lists do not have cost it nothing to do again. A share
  // of 0 asks no list.
  void warn_of_unlisted(const Cut& cut) {
    if (budget_.kind == Budget::Kind::kShare && budget_.value == 0) return;
    MemoryTraits traits(*graph_.context);
    const RecomputeTags tags(graph_);
    std::size_t count = 0;
    NodeId first;
    for (NodeId id : graph_.step().order) {
      const Node& node = graph_.step().nodes[id];
      if (!cut.recomputes(id) || node.op == nullptr || tags.is_recomputed(node)) continue;
      const bool is_heavy = node.op->cost == CostClass::kMatmul || node.op->cost == CostClass::kAttention;
      if (!is_heavy || traits.has(node, kIsComputeIntensive)) continue;
      if (++count == 1) first = id;
    }
    if (count == 0) return;
    const Node& node = graph_.step().nodes[first];
    console_.warn(
        fmt::format("{}, the first %{} ({}), computed again as if free: PyTorch's lists do not have {}",
                    counted(count, "call"), graph_.text(node.name), graph_.text(node.target),
                    count == 1 ? "it" : "them"));
  }

  BudgetCut choose_exact() {
    switch (budget_.kind) {
      case Budget::Kind::kNone:
        return cuts_.cut_at_price(Cluster{}.pcie);
      case Budget::Kind::kShare: {
        BudgetStep step =
            cut_for_share(cuts_, budget_.value, [&](const BudgetCut& cut) { return measure(cut); });
        budget_bytes_ =
            static_cast<std::int64_t>(budget_.value * static_cast<double>(cuts_.fastest().totals.bytes));
        explain_excess(step);
        return std::move(step.cut);
      }
      case Budget::Kind::kBytes:
        is_within_ = true;
        budget_bytes_ = static_cast<std::int64_t>(budget_.value);
        return within_bytes();
      case Budget::Kind::kSeconds:
        is_within_ = true;
        return cuts_.cut_within_seconds(budget_.value);
    }
    return {};
  }

  // Bytes are kept to the letter. What backward computes again is alive there, so that fewer bytes
  // may be a larger peak.
  BudgetCut within_bytes() {
    BudgetCut chosen = cuts_.cut_within(*budget_bytes_);
    const std::int64_t peak = measure(chosen), most = cuts_.fastest().totals.bytes;
    // More bytes: only where these give less is the rest looked at.
    if (measure(cuts_.cut_within(std::min(*budget_bytes_ + most / kBudgetSteps, most))) >= peak)
      return chosen;
    const double share = static_cast<double>(*budget_bytes_) / static_cast<double>(most);
    const BudgetStep held =
        cut_for_share(cuts_, std::clamp(share, 0.0, 1.0), [&](const BudgetCut& cut) { return measure(cut); });
    console_.warn(fmt::format(
        "what is computed again is alive in backward, so that the peak is {}; with {} saved it is {}",
        memory_text(peak), memory_text(held.cut.totals.bytes), memory_text(held.peak_bytes)));
    return chosen;
  }

  // A share asks for so few bytes or as few as may be, as PyTorch's does: what is above it is said.
  void explain_excess(const BudgetStep& step) {
    const std::int64_t held = step.cut.totals.bytes, least = cuts_.smallest().totals.bytes;
    if (step.is_held)
      refused_.push_back(fmt::format("to save less than {}: the peak would be larger, or as many seconds",
                                     memory_text(held)));
    if (least > *budget_bytes_)
      refused_.push_back(fmt::format("to save less than {}: backward needs as much", memory_text(least)));
    warn_if_missed(held);
  }
  void warn_if_missed(std::int64_t held) {
    is_within_ = held <= *budget_bytes_;
    if (!*is_within_)
      console_.warn(fmt::format("{} {}, {}, is missed: {} are saved. Refused: {}", budget_from_,
                                *budget_text_, memory_text(*budget_bytes_), memory_text(held),
                                fmt::join(refused_, "; ")));
  }

  // Nothing is written that is not proved to compute what the joint graph does.
  void require_proof(const Halves& halves) const {
    const RewriteReport report = check_halves(graph_, halves.forward, halves.backward);
    if (report.violations.empty()) return;
    const Violation& first = report.violations.front();
    if (first.invariant == "rewrite-effects")
      throw PassError(
          "partition.state",
          fmt::format("forward, then backward would compute something else: {}", first.message), first.site,
          "a value is overwritten before backward reads it: tag what is computed from it MUST_SAVE, or use "
          "--policy exact");
    throw PassError(
        "partition.proof",
        fmt::format("forward and backward are not proved to compute what the step does: {}: {}",
                    first.invariant, first.message),
        first.site,
        "try another --policy; `epweave verify` says what the graph records wrongly, if anything");
  }

  Json write_report(const BudgetCut& chosen, std::int64_t peak) const {
    Json saved = Json::array();
    for (NodeId id : chosen.cut.saved) {
      Json row = kept_row(graph_, id, costs_);
      row["why"] = why(id);
      saved.push_back(std::move(row));
    }
    const double gap = chosen.totals.seconds > 0 && chosen.bound_seconds > 0
                           ? chosen.totals.seconds / chosen.bound_seconds - 1
                           : 0;
    const bool is_bounded = has_bound(chosen);
    return {{"file", options_.input.path},
            {"forward", file_report(options_.forward)},
            {"backward", file_report(options_.backward)},
            {"policy", options_.policy},
            {"budget", budget_text_ ? Json(*budget_text_) : Json()},
            {"budget_from", budget_from_.empty() ? Json() : Json(budget_from_)},
            {"budget_bytes", budget_bytes_ ? Json(*budget_bytes_) : Json()},
            {"within_budget", is_within_ ? Json(*is_within_) : Json()},
            {"saved", std::move(saved)},
            {"saved_bytes", chosen.totals.bytes},
            {"gathered_bytes", chosen.totals.gathered},
            {"recomputed", list_recomputed(graph_, chosen.cut, costs_)},
            {"recompute_flops", chosen.totals.flops},
            {"recompute_seconds", chosen.totals.seconds},
            {"peak_bytes", peak},
            {"bound_seconds", chosen.bound_seconds},
            {"gap", is_bounded ? Json(gap) : Json()},
            {"least_bytes", least_bytes_ ? Json(*least_bytes_) : Json()},
            {"refused", refused_}};
  }

  std::string_view why(NodeId id) const {
    const Node& node = graph_.step().nodes[id];
    if (node.kind == NodeKind::kPlaceholder) return "an input of the step";
    const RecomputeTags tags(graph_);
    if (options_.policy == "tags" && !tags.is_recomputed(node))
      return node.recompute ? graph_.text(node.recompute) : "not tagged to be computed again";
    const auto holds = [&](const auto& of) {
      return holds_with_call(*graph_.context, graph_.step(), id,
                             [&](NodeId at) { return of(graph_.step().nodes[at]); });
    };
    if (options_.policy == "tags" && !holds([&](const Node& at) { return tags.is_recomputed(at); }))
      return "tagged, but not what makes it";
    if (options_.policy == "tags" && find_described_launch(*graph_.context, graph_.step(), node).valid())
      return "a size of what is exchanged in forward";
    if (options_.policy == "tags" || !holds([&](const Node& at) { return can_run_twice(graph_, at); }))
      return "may not run twice";
    return options_.policy == "exact" ? "cheaper than to compute it again" : "in the minimum cut";
  }

  const PartitionOptions& options_;
  Console& console_;
  std::optional<std::string> budget_text_;  // as the report has it
  std::string_view budget_from_;            // who asks for it; empty without one
  Budget budget_;
  Graph graph_;
  Joint joint_;
  ValueCosts costs_;
  ExactCuts cuts_;
  std::vector<std::string> refused_;
  std::optional<std::int64_t> budget_bytes_;  // none without a budget of bytes
  std::optional<std::int64_t> least_bytes_;   // of exact cuts
  std::optional<bool> is_within_;             // none without a budget
};

// Of --json, nothing else goes to standard output.
void check_places(const PartitionOptions& options, bool json) {
  if (json && (options.forward == "-" || options.backward == "-"))
    throw UsageError(
        "--json and the graph cannot both go to standard output: give --fwd F and --bwd B files");
  if (options.report == "-" && json)
    throw UsageError("--report - shares standard output with --json: give it a file");
}

}  // namespace

int partition(const PartitionOptions& options, Console& console) {
  check_places(options, console.json());
  check_output({.path = options.forward});
  check_output({.path = options.backward});
  return Partition(options, console).run();
}

}  // namespace epweave::cli
