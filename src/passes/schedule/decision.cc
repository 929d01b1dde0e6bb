#include "passes/schedule/decision.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/counted.h"
#include "base/memory_text.h"
#include "cost/live_bytes.h"
#include "cost/member_prices.h"
#include "cost/simulate.h"
#include "passes/coordinates.h"
#include "passes/schedule/whole_shards.h"

namespace epweave {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// How many prices are from where.
std::string describe_sources(const StepModel& model, const CostFile& file) {
  std::size_t measured = 0, modelled = 0;
  for (const PriceSource source : model.sources) {
    if (source == PriceSource::kModelled || source == PriceSource::kAssumed) ++modelled;
    if (is_measured(source)) ++measured;
  }
  const std::string on = model.measured_on.empty() ? "" : " on " + model.measured_on;
  return fmt::format("; {} prices are measured{} ({}), {} modelled", measured, on, file.path, modelled);
}

}  // namespace

MemoryBudget parse_memory_budget(std::string_view whole) {
  constexpr std::string_view kOfRun = "run+";
  const bool is_of_run = whole.starts_with(kOfRun);
  const std::string_view text = whole.substr(is_of_run ? kOfRun.size() : 0);
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
                    whole));
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc() || !std::isfinite(number) || number < 0) fail();
  if (unit == "%") {
    if (number > 1e6) fail();
    return {.bytes = std::nullopt, .growth = number / 100, .is_of_run = is_of_run};
  }
  if (is_of_run) fail();
  for (const Unit& u : kUnits)
    if (u.name == unit && number * u.bytes < 9e18 && number > 0)
      return {.bytes = static_cast<std::int64_t>(number * u.bytes), .growth = 0};
  fail();
  return {};
}

DecisionModel model_decision(const Graph& graph, const PriceOptions& options) {
  DecisionModel model = model_rewritten(graph, options);
  if (options.measured) require_measured(model.step, options.measured->costs, options.measured->path);
  return model;
}

DecisionModel model_rewritten(const Graph& graph, const PriceOptions& options) {
  const MeasuredCosts* measured = options.measured ? &options.measured->costs : nullptr;
  WholeShards shards = find_whole_shards(graph);
  DecisionModel model{.step = model_step(shards.graph ? *shards.graph : graph, options.cluster, measured)};
  if (options.unpriced == Unpriced::kDecline) require_prices(graph, model.step);
  model.uneven_groups = price_for_all_members(graph, model.step);
  model.uneven_inputs = shards.problem ? 0 : shards.uneven_inputs;
  model.padding = std::move(shards.padding);
  constexpr std::string_view kSo = ", so other ranks have other prices";
  if (shards.problem) model.other_prices = fmt::format("{}{}", *shards.problem, kSo);
  if (shards.merge_problem) model.other_nodes = fmt::format("{}{}", *shards.merge_problem, kSo);
  return model;
}

Predicted predict(const StepModel& model, std::span<const Place> order) {
  Simulator simulator(model);
  return {simulator.run(order), find_peak(model, order).bytes};
}

std::int64_t find_given_peak(const Graph& given) {
  Graph graph = given;
  hoist_rank_nodes(graph);
  const WholeShards shards = find_whole_shards(graph);
  const StepModel model = model_step(shards.graph ? *shards.graph : graph, Cluster{});
  return find_peak(model, given_order(model)).bytes;
}

std::string describe(const Predicted& p) {
  return fmt::format("{:.2f} ms at {}", p.seconds * 1e3, memory_text(p.peak));
}

std::string describe_assumptions(const DecisionModel& decision, const PriceOptions& options) {
  const StepModel& model = decision.step;
  std::string text = fmt::format("predicted for one rank of cluster {}", model.cluster.name);
  if (const std::string changed = changed_parameters(model.cluster); !changed.empty())
    text += fmt::format(" ({})", changed);
  if (options.measured) text += describe_sources(model, *options.measured);
  if (model.assumed_symbols > 0)
    text += fmt::format("; {} extents are assumed to be balanced", model.assumed_symbols);
  if (!model.unpriced.empty())
    text += model.unpriced.size() == 1
                ? "; 1 call without a price is taken to be free"
                : fmt::format("; {} calls without a price are taken to be free", model.unpriced.size());
  if (model.unsized_storages > 0)
    text += fmt::format("; memory is without {} of unknown size", counted(model.unsized_storages, "tensor"));
  if (decision.uneven_groups > 0)
    text += fmt::format(
        "; {} lie{} unevenly on nodes: priced as where the fewest members share one",
        decision.uneven_groups == 1 ? "1 group" : fmt::format("{} groups", decision.uneven_groups),
        decision.uneven_groups == 1 ? "s" : "");
  if (decision.uneven_inputs > 0)
    text += fmt::format("; {} input{} cut unevenly: priced as where shards are whole", decision.uneven_inputs,
                        decision.uneven_inputs == 1 ? " is" : "s are");
  if (!model.cluster.has_contention()) text += "; without contention";
  return text;
}

}  // namespace epweave
