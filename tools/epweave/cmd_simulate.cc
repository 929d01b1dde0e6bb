// How long a step takes in the order that it has, by a cost model: docs/overlap.md.
#include <fmt/format.h>

#include "baseline.h"
#include "clock_trace.h"
#include "commands.h"
#include "common/command_files.h"
#include "common/graphs.h"
#include "cost/unique_json.h"
#include "io/file.h"
#include "simulate_report.h"
#include "step_clock.h"

namespace epweave::cli {
namespace {

constexpr double kTolerance = 0.01;

Cluster cluster_of(const SimulateOptions& options) {
  Cluster cluster = parse_cluster(options.cluster, read_cluster_file);
  const std::vector<std::string_view> changes(options.set.begin(), options.set.end());
  set_parameters(cluster, changes);
  return cluster;
}

void find_bounds_of(const Graph& graph, Simulation& simulation) {
  HeadsAndTails known;
  const Place loss = find_forward_end(graph, simulation.model);
  const std::span<const Place> waists(&loss, loss == kNoPlace ? 0 : 1);
  simulation.bounds = find_bounds(simulation.model, {}, &known, waists);
  const auto pairs = keep_recomputation_behind(graph, simulation.model);
  simulation.recompute_behind_forward = simulation.bounds.lower_bound;
  if (!pairs.empty())
    simulation.recompute_behind_forward = std::max(
        simulation.bounds.lower_bound, find_bounds(simulation.model, pairs, &known, waists).lower_bound);
}

int report_regressions(const SimulateOptions& options, Json& report, Console& console) {
  const Json before = parse_unique_json(read_file_of("--baseline", options.baseline), options.baseline);
  const auto worse =
      list_regressions(before, report, options.tolerance.value_or(kTolerance), options.baseline);
  if (before.contains("cluster") && before.at("cluster") != report.at("cluster"))
    console.warn(fmt::format("{} was predicted for another cluster", options.baseline));
  if (before.contains("costs") && before.at("costs").is_object() && before.at("costs").contains("file") &&
      before.at("costs").at("file").is_null() != options.pricing.costs.empty())
    console.warn(fmt::format("{} was predicted {} measured costs", options.baseline,
                             options.pricing.costs.empty() ? "by" : "without"));
  for (const std::string& line : worse) console.requested("worse than the baseline: " + line);
  report["regressions"] = worse;
  return worse.empty() ? kFine : kDifferent;
}

}  // namespace

int simulate(const SimulateOptions& options, Console& console) {
  if (options.trace == "-")
    throw UsageError("--trace - shares standard output with the report: give it a file");
  if (options.tolerance && options.baseline.empty())
    throw UsageError("--tolerance is for a comparison: give --baseline REPORT, too");
  const Cluster cluster = cluster_of(options);
  const Graph graph = read_sound_input(options.input, nullptr, Soundness::kStructure);
  Simulation simulation{.file = options.input.path,
                        .graph = display_name(options.input),
                        .costs = options.pricing.costs,
                        .model = price_step(graph, cluster, options.pricing)};
  Simulator simulator(simulation.model);
  const std::vector<Place> order = given_order(simulation.model);
  simulator.run(order);
  simulation.sums = simulator.measure();
  simulation.peak = find_peak(simulation.model, order);
  simulation.collectives = explain_exposure(simulation.model, order, simulator);
  find_bounds_of(graph, simulation);
  if (!options.measured.empty())
    simulation.measured = read_measured_step(options.measured, graph, simulation.model);
  Json report;
  if (console.json() || !options.baseline.empty()) report = simulation_report(graph, simulation);
  const int code = options.baseline.empty() ? kFine : report_regressions(options, report, console);
  if (!options.trace.empty())
    write_bytes(options.trace, clock_trace_text(graph, simulation.graph, simulation.model, order, simulator,
                                                list_assumptions(graph, simulation)));
  console.print(console.json() ? report_text(report) : simulation_text(graph, simulation));
  return code;
}

}  // namespace epweave::cli
