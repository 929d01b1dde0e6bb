#include "passes/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/memory_text.h"
#include "base/parallel.h"
#include "cost/live_bytes.h"
#include "cost/simulate.h"
#include "passes/coordinates.h"
#include "passes/schedule/apply_order.h"
#include "passes/schedule/fill_idle.h"
#include "passes/schedule/order_value.h"
#include "passes/schedule/search_order.h"

namespace epweave {
namespace {

// How many list schedules to make: on one core each takes about half a microsecond for each node,
// and a setting up to three of them. Large steps get fewer, so that the whole grows less than the
// step does.
SearchOptions plan_search(Effort effort, std::size_t nodes) {
  const auto within = [](double count, std::size_t least, std::size_t most) {
    return std::clamp(static_cast<std::size_t>(count), least, most);
  };
  const double size = static_cast<double>(std::max<std::size_t>(nodes, 100));
  if (effort == Effort::kFast) {
    const std::size_t all = within(5e8 / std::pow(size, 1.5), 6, 360);
    return {.settings = std::max<std::size_t>(all / 4, 5), .steps = all * 3 / 4};
  }
  return {.settings = within(6e6 / size, 16, 240), .steps = within(40e6 / size, 16, 1500)};
}

// What is shorter, of two that fit. Whether it is the other.
bool keep_better(FoundOrder& best, FoundOrder other) {
  const std::size_t schedules = best.schedules + other.schedules;
  const std::int64_t least_peak = std::min(best.least_peak, other.least_peak);
  const bool is_better = other.fits && (!best.fits || other.value.seconds < best.value.seconds);
  if (is_better) best = std::move(other);
  best.schedules = schedules;
  best.least_peak = least_peak;
  return is_better;
}

// What a search is of. Idle time may be filled with work of the backward, by a problem in which
// recomputation is free.
struct Search {
  const ScheduleProblem& problem;
  std::int64_t budget;
  const ScheduleProblem* fill = nullptr;
  std::int64_t fill_budget = 0;
};

FoundOrder search_and_fill(const Search& search, Effort effort) {
  SearchOptions options = plan_search(effort, search.problem.scheduled());
  options.budget = search.budget;
  FoundOrder found = search_order(search.problem, options);
  if (search.fill == nullptr || !found.fits) return found;
  FoundOrder filled{.order = fill_idle(*search.fill, found.order, search.fill_budget),
                    .least_peak = found.least_peak,
                    .schedules = 1};
  filled.value = evaluate_order(*search.fill, filled.order);
  filled.fits = filled.value.peak <= search.fill_budget;
  keep_better(found, std::move(filled));
  return found;
}

// More effort never gives a longer order: it is spent on the search that did best with less.
FoundOrder find_best(std::span<const Search> searches, Effort effort) {
  std::vector<FoundOrder> found(searches.size());
  for_each_in_parallel(searches.size(),
                       [&](std::size_t i) { found[i] = search_and_fill(searches[i], Effort::kFast); });
  FoundOrder best = std::move(found[0]);
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < searches.size(); ++i)
    if (keep_better(best, std::move(found[i]))) chosen = i;
  if (effort != Effort::kFast) keep_better(best, search_and_fill(searches[chosen], effort));
  return best;
}

// Prices of ranks whose shards differ in size differ, too: only the order that the step has is the
// same on all of them.
ScheduleRules rules_of(const DecisionModel& decision, const ScheduleOptions& options) {
  ScheduleRules rules = options.rules;
  if (decision.other_prices) rules.launches = LaunchOrder::kAllKept;
  return rules;
}

// A graph to schedule, its lookups in meshes in front, and what it costs.
struct Step {
  const Graph& graph;
  const DecisionModel& decision;
  const ScheduleRules& rules;
  Effort effort;
  std::int64_t budget;
};

// Recomputation that is free to move is tried behind the forward, too: of two searches, the one
// with more orders to choose from need not find the shorter one. The forward's idle time is filled
// with it then, for which a search with less memory leaves room.
FoundOrder find_order(const Step& step, std::int64_t given_peak) {
  const auto make_problem = [&](const ScheduleRules& rules) {
    return make_schedule_problem(step.graph, step.decision, rules);
  };
  const ScheduleProblem problem = make_problem(step.rules);
  const Search search{problem, step.budget};
  if (step.rules.recompute != RecomputeOrder::kFree) return find_best({&search, 1}, step.effort);
  const ScheduleProblem behind = make_problem({.launches = step.rules.launches});
  std::vector<Search> searches;
  const auto add = [&](const ScheduleProblem& searched, std::int64_t budget) {
    searches.push_back({searched, budget, &problem, step.budget});
  };
  add(problem, step.budget);
  add(behind, step.budget);
  if (const std::int64_t room = step.budget - given_peak; room > 0) add(behind, given_peak + room / 4);
  return find_best(searches, step.effort);
}

struct LeastMemory {
  std::int64_t peak = 0;    // of all orders that were found
  std::int64_t budget = 0;  // that a search has met, and so will meet again
};

// A search whose budget is far too small keeps close to the input's order and says little of what
// can be reached; so budgets between its own, or what any order needs, and the input's peak are
// tried, by halving. Each is tried as the search of a step of any size begins.
LeastMemory find_least_memory(const Step& step, std::int64_t given, std::int64_t peak) {
  constexpr int kHalvings = 8;
  constexpr std::size_t kBegin = 5;
  const ScheduleProblem problem = make_schedule_problem(step.graph, step.decision, step.rules);
  LeastMemory least{.peak = peak, .budget = given};
  const auto is_met = [&](std::int64_t budget) {
    const FoundOrder found =
        search_order(problem, {.budget = budget, .settings = kBegin, .steps = 0, .any = true});
    least.peak = std::min(least.peak, found.least_peak);
    return found.fits;
  };
  std::int64_t below = std::max(step.budget, bound_peak(step.decision.step) - 1);
  for (int i = 0; i < kHalvings && least.budget - below > 1; ++i) {
    const std::int64_t middle = below + (least.budget - below) / 2;
    (is_met(middle) ? least.budget : below) = middle;
  }
  // What the best of these needs is mostly met as a budget, too.
  if (const std::int64_t budget = least.peak; budget < least.budget && is_met(budget)) least.budget = budget;
  return least;
}

// All digits, too, where the short form drops some: "1.00 MiB (1048576 bytes)", "96 B".
std::string exact_memory_text(std::int64_t bytes) {
  const std::string text = memory_text(bytes);
  return text.ends_with(" B") ? text : fmt::format("{} ({} bytes)", text, bytes);
}

[[noreturn]] void refuse_memory(std::int64_t budget, const Predicted& given, const LeastMemory& least) {
  throw PassError(
      "schedule.memory",
      fmt::format("the budget is {}, but the input needs {} at its peak, and no order that was tried needs "
                  "less than {}",
                  exact_memory_text(budget), memory_text(given.peak), exact_memory_text(least.peak)),
      Site(),
      fmt::format("give memory={} or more, or a share above the input's peak as in memory=2%", least.budget));
}

std::string_view reason_of(StepKind kind) {
  switch (kind) {
    case StepKind::kKernel:
      return "computes where the order is predicted to take least";
    case StepKind::kLaunch:
      return "launched when its group would idle";
    case StepKind::kWait:
      return "waits where its collective is predicted to be done";
    default:
      return "in front of its first user";
  }
}

NodeTimes time_nodes(const StepModel& model, std::span<const Place> order) {
  NodeTimes times;
  for (Place place = 0; place < model.size(); ++place) {
    const bool is_launch = model.kinds[place] == StepKind::kLaunch;
    (is_launch ? times.collective : times.kernel).at(model.nodes[place]) = model.seconds[place];
  }
  Simulator simulator(model);
  simulator.run(order);
  std::vector<double> exposed;
  simulator.measure(&exposed);
  for (std::size_t k = 0; k < exposed.size(); ++k)
    times.exposed.at(model.nodes[simulator.collectives()[k]]) = exposed[k];
  return times;
}

}  // namespace

QuickLook::QuickLook(const Graph& given_graph, const ScheduleOptions& options) : memory_(options.memory) {
  Graph graph = given_graph;
  hoist_rank_nodes(graph);
  decision_ = model_decision(graph, options.prices());
  problem_ = make_schedule_problem(graph, decision_, rules_of(decision_, options));
}

Prediction QuickLook::run(NodeTimes* times) const {
  constexpr std::size_t kQuick = 4;
  const StepModel& model = decision_.step;
  const Predicted given = predict(model, given_order(model));
  const std::int64_t budget = memory_.above(given.peak);
  const FoundOrder found = search_order(problem_, {.budget = budget, .settings = kQuick, .steps = 0});
  const Predicted result = predict(model, found.order);
  if (times != nullptr) *times = time_nodes(model, found.order);
  return {given.seconds, result.seconds, given.peak, result.peak, found.fits && result.peak <= budget};
}

Prediction predict_schedule(const Graph& given_graph, const ScheduleOptions& options, Look look) {
  if (look == Look::kQuick) return QuickLook(given_graph, options).run();
  Graph graph = given_graph;
  hoist_rank_nodes(graph);
  const DecisionModel decision = model_decision(graph, options.prices());
  const StepModel& model = decision.step;
  const ScheduleRules rules = rules_of(decision, options);
  const Predicted given = predict(model, given_order(model));
  const std::int64_t budget = options.memory.above(given.peak);
  const FoundOrder found = find_order({graph, decision, rules, options.effort, budget}, given.peak);
  const Predicted result = predict(model, found.order);
  const bool fits = found.fits && result.peak <= budget;
  const bool stays = given.peak <= budget && (!fits || given.seconds <= result.seconds);
  const Predicted& taken = stays ? given : result;
  return {given.seconds, taken.seconds, given.peak, taken.peak, stays || fits};
}

Comparison compare_scheduled(Compared graph, Compared other, const ScheduleOptions& options) {
  const auto look_at = [&](const Compared& compared, Look look) {
    std::optional<Prediction>& known = look == Look::kQuick ? compared.known.quick : compared.known.whole;
    if (!known) known = predict_schedule(compared.graph, options, look);
    return *known;
  };
  Comparison compared;
  for (const Look look : {Look::kQuick, Look::kWhole}) {
    compared.graph = look_at(graph, look);
    compared.other = look_at(other, look);
    compared.pays =
        compared.other.fits && (!compared.graph.fits || compared.other.seconds < compared.graph.seconds);
    if (!compared.pays) break;
  }
  return compared;
}

Comparison compare_scheduled(const Graph& graph, const Graph& other, const ScheduleOptions& options) {
  KnownPredictions known, known_of_other;
  return compare_scheduled({graph, known}, {other, known_of_other}, options);
}

std::string print_time(const Prediction& predicted) {
  return describe(Predicted{predicted.seconds, predicted.peak});
}

std::string describe(const Comparison& merged) {
  return fmt::format("scheduled, {}; not merged and scheduled, {}", print_time(merged.other),
                     print_time(merged.graph));
}

PassResult schedule(const Graph& given_graph, const ScheduleOptions& options) {
  EPWEAVE_CHECK(!options.like_inductor);
  Graph graph = given_graph;
  hoist_rank_nodes(graph);
  const DecisionModel decision = model_decision(graph, options.prices());
  const StepModel& model = decision.step;
  const Predicted given = predict(model, given_order(model));
  const std::int64_t budget = options.memory.above(given.peak);
  const ScheduleRules rules = rules_of(decision, options);
  const Step step{graph, decision, rules, options.effort, budget};
  if (budget < bound_peak(model))
    refuse_memory(budget, given, find_least_memory(step, given.peak, given.peak));
  const FoundOrder found = find_order(step, given.peak);
  const Predicted result = predict(model, found.order);
  const bool fits = found.fits && result.peak <= budget;
  if (!fits && given.peak > budget)
    refuse_memory(budget, given, find_least_memory(step, given.peak, found.least_peak));

  PassResult pass{given_graph};
  if (fits && (result.seconds < given.seconds || given.peak > budget)) {
    pass.graph = graph;
    const std::size_t moved = apply_order(graph, model, found.order, rules, reason_of, pass.graph);
    pass.notes.push_back(fmt::format(
        "predicted: {} -> {}, within {}; {} of {} nodes moved; best of {} orders", describe(given),
        describe(result), memory_text(budget), moved, model.size(), found.schedules));
  } else {
    pass.notes.push_back(fmt::format("predicted: {}; none of {} orders within {} is faster, so it stays",
                                     describe(given), found.schedules, memory_text(budget)));
  }
  if (decision.other_prices)
    pass.notes.push_back(fmt::format("predicted: {}: launches keep the given order, which all ranks have",
                                     *decision.other_prices));
  pass.notes.push_back(describe_assumptions(decision, options.prices()));
  return pass;
}

}  // namespace epweave
