#include "passes/schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "analysis/order.h"
#include "cost/live_bytes.h"
#include "cost/member_prices.h"
#include "cost/simulate.h"
#include "passes/coordinates.h"
#include "passes/overlap_ep/overlap_ep_movement.h"
#include "passes/record.h"
#include "passes/schedule/search_order.h"

namespace epweave {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// How many list schedules to make: on one core each takes about half a microsecond for each node, and a setting up
// to three of them. Large steps get fewer, so that the whole grows less than the step does.
SearchOptions plan_search(Effort effort, std::size_t nodes) {
  const auto within = [](double count, std::size_t least, std::size_t most) {
    return std::clamp(static_cast<std::size_t>(count), least, most);
  };
  const double size = static_cast<double>(std::max<std::size_t>(nodes, 100));
  if (effort == Effort::kFast) {
    const std::size_t all = within(5e8 / std::pow(size, 1.5), 6, 360);
    return {.settings = std::max<std::size_t>(all / 4, 4), .steps = all * 3 / 4};
  }
  return {.settings = within(6e6 / size, 16, 240), .steps = within(24e6 / size, 16, 1500)};
}

// More effort never gives a longer order.
FoundOrder find_order(const ScheduleProblem& problem, Effort effort, std::int64_t budget) {
  SearchOptions search = plan_search(Effort::kFast, problem.scheduled());
  search.budget = budget;
  FoundOrder found = search_order(problem, search);
  if (effort == Effort::kFast) return found;
  search = plan_search(effort, problem.scheduled());
  search.budget = budget;
  FoundOrder more = search_order(problem, search);
  const bool is_better = more.fits && (!found.fits || more.value.seconds < found.value.seconds);
  FoundOrder& best = is_better ? more : found;
  best.schedules = found.schedules + more.schedules;
  best.least_peak = std::min(found.least_peak, more.least_peak);
  return std::move(best);
}

// A step with prices that are the same on every rank that runs it.
struct DecisionModel {
  StepModel step;
  std::size_t uneven_groups = 0;
};

DecisionModel model_decision(const Graph& graph, const ScheduleOptions& options) {
  const MeasuredCosts* measured = options.measured ? &options.measured->costs : nullptr;
  DecisionModel model{.step = model_step(graph, options.cluster, measured)};
  if (measured != nullptr) require_measured(model.step, *measured, options.measured->path);
  if (options.unpriced == Unpriced::kDecline) require_prices(graph, model.step);
  model.uneven_groups = price_for_all_members(graph, model.step);
  return model;
}

struct Predicted {
  double seconds = 0;
  std::int64_t peak = 0;
};

// What the tool itself says of an order, with host and contention as the cluster has them.
Predicted predict(const StepModel& model, std::span<const Place> order) {
  Simulator simulator(model);
  return {simulator.run(order), find_peak(model, order).bytes};
}

std::int64_t budget_of(const MemoryBudget& memory, std::int64_t given) {
  return memory.bytes.value_or(static_cast<std::int64_t>(static_cast<double>(given) * (1 + memory.growth)));
}

std::string print_gib(std::int64_t bytes) {
  const double gib = static_cast<double>(bytes) / kGiB;
  return gib < 1 ? fmt::format("{:.3f} GiB", gib) : fmt::format("{:.2f} GiB", gib);
}

[[noreturn]] void refuse_memory(std::int64_t budget, const Predicted& given, std::int64_t least) {
  throw PassError(
      "schedule.memory",
      fmt::format("the budget is {} ({} bytes), but the input needs {} at its peak, and no order that "
                  "was tried needs less than {} ({} bytes)",
                  print_gib(budget), budget, print_gib(given.peak), print_gib(least), least),
      Site(),
      fmt::format("give memory={} or more, or a share above the input's peak as in memory=2%", least));
}

std::vector<NodeId> nodes_of(const StepModel& model, std::span<const Place> order) {
  std::vector<NodeId> nodes;
  nodes.reserve(order.size());
  for (Place place : order) nodes.push_back(model.nodes[place]);
  return nodes;
}

// Under the free order, launches of a group may change places: every rank gets this same order.
void prove_order(const Graph& graph, const OrderFacts& facts, const Body& after, const ScheduleRules& rules) {
  IdSet<NodeId> free_launches(after.nodes.size());
  if (rules.launches == LaunchOrder::kFree)
    for (const Launch& launch : facts.launches) free_launches.insert(launch.node);
  const auto violation = find_order_violation(facts, after, free_launches);
  if (!violation) return;
  throw PassError(
      "schedule.illegal-order",
      "the order found would break one that must hold: " + print_path(graph, graph.step(), {&*violation, 1}),
      site_of(graph, graph.step().nodes[violation->after]), "report the graph; schedule without it");
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

std::size_t record_moves(const Graph& before, const StepModel& model, Graph& after) {
  const std::vector<NodeId> moved = find_moved(before.step(), after.step().order);
  IdVector<NodeId, Place> places(before.step().nodes.size());
  for (Place i = 0; i < model.size(); ++i) places[model.nodes[i]] = i;
  const StringId pass = after.intern("schedule");
  Body& step = after.step();
  for (const NodeId id : moved)
    record_moved(*after.context, step.nodes[id],
                 Provenance{.pass = pass, .reason = after.intern(reason_of(model.kinds[places[id]]))});
  return moved.size();
}

std::string describe(const Predicted& p) {
  return fmt::format("{:.2f} ms at {}", p.seconds * 1e3, print_gib(p.peak));
}

// How many prices are from where.
std::string describe_sources(const StepModel& model, const CostFile& file) {
  std::size_t measured = 0, modelled = 0;
  for (const PriceSource source : model.sources) {
    if (source == PriceSource::kModelled || source == PriceSource::kAssumed) ++modelled;
    if (is_measured(source)) ++measured;
  }
  return fmt::format("; {} prices are measured ({}), {} modelled", measured, file.path, modelled);
}

std::string describe_assumptions(const DecisionModel& decision, const ScheduleOptions& options) {
  const StepModel& model = decision.step;
  std::string text = fmt::format("predicted for one rank of cluster {}", model.cluster.name);
  if (const std::string changed = changed_parameters(model.cluster); !changed.empty())
    text += fmt::format(" ({})", changed);
  if (options.measured) text += describe_sources(model, *options.measured);
  if (model.assumed_symbols > 0)
    text += fmt::format("; {} extents are assumed to be balanced", model.assumed_symbols);
  if (!model.unpriced.empty())
    text += fmt::format("; {} calls without a price are taken to be free", model.unpriced.size());
  if (decision.uneven_groups > 0)
    text += fmt::format("; {} groups have more members on some nodes than on others: priced as on the fewest",
                        decision.uneven_groups);
  if (!model.cluster.has_contention()) text += "; without contention";
  return text;
}

}  // namespace

MemoryBudget parse_memory_budget(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr Unit kUnits[] = {{"", 1},         {"B", 1},
                                    {"KiB", 1024.0}, {"MiB", 1024.0 * 1024},
                                    {"GiB", kGiB},   {"TiB", kGiB * 1024},
                                    {"kB", 1e3},     {"MB", 1e6},
                                    {"GB", 1e9},     {"TB", 1e12}};
  const auto fail = [&] {
    throw UsageError(
        fmt::format("option 'memory': '{}' is no amount of memory\n  expected a share above what the "
                    "input needs, as in memory=2%, or bytes, as in memory=32.1GiB",
                    text));
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc() || !std::isfinite(number) || number < 0) fail();
  if (unit == "%") {
    if (number > 1e6) fail();
    return {.bytes = std::nullopt, .growth = number / 100};
  }
  for (const Unit& u : kUnits)
    if (u.name == unit && number * u.bytes < 9e18 && number > 0)
      return {.bytes = static_cast<std::int64_t>(number * u.bytes), .growth = 0};
  fail();
  return {};
}

Prediction predict_schedule(const Graph& given_graph, const ScheduleOptions& options) {
  Graph graph = given_graph;
  hoist_rank_nodes(graph);
  constexpr std::size_t kQuick = 4;
  const StepModel model = model_decision(graph, options).step;
  const Predicted given = predict(model, given_order(model));
  const std::int64_t budget = budget_of(options.memory, given.peak);
  const ScheduleProblem problem = make_schedule_problem(graph, model, options.rules);
  const FoundOrder found = search_order(problem, {.budget = budget, .settings = kQuick, .steps = 0});
  const Predicted result = predict(model, found.order);
  return {given.seconds, result.seconds, given.peak, result.peak, found.fits && result.peak <= budget};
}

PassResult schedule(const Graph& given_graph, const ScheduleOptions& options) {
  Graph graph = given_graph;
  hoist_rank_nodes(graph);
  const DecisionModel decision = model_decision(graph, options);
  const StepModel& model = decision.step;
  const Predicted given = predict(model, given_order(model));
  const std::int64_t budget = budget_of(options.memory, given.peak);
  const ScheduleProblem problem = make_schedule_problem(graph, model, options.rules);
  const FoundOrder found = find_order(problem, options.effort, budget);
  const Predicted result = predict(model, found.order);
  const bool fits = found.fits && result.peak <= budget;
  if (!fits && given.peak > budget) refuse_memory(budget, given, found.least_peak);

  PassResult pass{given_graph};
  if (fits && (result.seconds < given.seconds || given.peak > budget)) {
    pass.graph = graph;
    pass.graph.step().order = nodes_of(model, found.order);
    prove_order(graph, find_order_facts(*graph.context, graph.step()), pass.graph.step(), options.rules);
    const std::size_t moved = record_moves(graph, model, pass.graph);
    pass.notes.push_back(fmt::format(
        "predicted: {} -> {}, within {}; {} of {} nodes moved; best of {} orders", describe(given),
        describe(result), print_gib(budget), moved, model.size(), found.schedules));
  } else {
    pass.notes.push_back(fmt::format("predicted: {}; none of {} orders within {} is faster, so it stays",
                                     describe(given), found.schedules, print_gib(budget)));
  }
  pass.notes.push_back(describe_assumptions(decision, options));
  return pass;
}

}  // namespace epweave
