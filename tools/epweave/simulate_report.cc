#include "simulate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/counted.h"
#include "base/memory_text.h"
#include "cost/prices.h"
#include "figures.h"
#include "node_captions.h"
#include "ops/op.h"

namespace epweave::cli {
namespace {

const Node& node_at(const Graph& graph, const StepModel& model, Place place) {
  return graph.step().nodes[model.nodes[place]];
}

std::string_view name_at(const Graph& graph, const StepModel& model, Place place) {
  return graph.text(node_at(graph, model, place).name);
}

Json name_or_null(const Graph& graph, const StepModel& model, Place place) {
  return place == kNoPlace ? Json() : Json(name_at(graph, model, place));
}

using SourceCounts = std::array<std::size_t, kPriceSources>;

SourceCounts count_sources(const StepModel& model) {
  SourceCounts counts{};
  for (const PriceSource source : model.sources) ++counts[static_cast<std::size_t>(source)];
  return counts;
}

std::size_t count_of(const SourceCounts& counts, PriceSource source) {
  return counts[static_cast<std::size_t>(source)];
}

// --------------------------------------------------------------------------- JSON

Json costs_report(const Simulation& simulation) {
  const SourceCounts counts = count_sources(simulation.model);
  Json report = {{"file", text_or_null(simulation.costs)}};
  for (std::size_t i = 1; i < kPriceSources; ++i)
    report[std::string(name_of(static_cast<PriceSource>(i)))] = counts[i];
  report["assumed_symbols"] = simulation.model.assumed_symbols;
  return report;
}

Json bounds_report(const Simulation& simulation) {
  const StepBounds& bounds = simulation.bounds;
  return {{"critical_path_ms", milliseconds(bounds.critical_path)},
          {"load_ms", milliseconds(bounds.load)},
          {"head_load_tail_ms", milliseconds(bounds.head_load_tail)},
          {"joints_ms", milliseconds(bounds.joints)},
          {"lower_bound_ms", milliseconds(bounds.lower_bound)},
          {"recompute_behind_forward_ms", milliseconds(simulation.recompute_behind_forward)}};
}

Json groups_report(const Simulation& simulation) {
  const StepModel& model = simulation.model;
  std::vector<std::size_t> launches(model.step_groups.size());
  for (const CollectiveExposure& collective : simulation.collectives)
    ++launches[model.groups[collective.launch]];
  Json list = Json::array();
  for (std::size_t i = 0; i < model.step_groups.size(); ++i) {
    const StepGroup& group = model.step_groups[i];
    list.push_back({{"name", group.name},
                    {"ranks", group.ranks},
                    {"ranks_in_node", group.local_ranks},
                    {"nodes", group.nodes},
                    {"collectives", launches[i]},
                    {"comm_ms", milliseconds(simulation.sums.group_comm[i])},
                    {"exposed_ms", milliseconds(simulation.sums.group_exposed[i])}});
  }
  return list;
}

// The nodes that it stands for: what --baseline matches by.
Json origins_report(const Graph& graph, const Node& node) {
  Json list = Json::array();
  for (const StringId origin : origins_of(node)) list.push_back(graph.text(origin));
  return list;
}

Json collective_report(const Graph& graph, const StepModel& model, const CollectiveExposure& collective) {
  const Node& node = node_at(graph, model, collective.launch);
  return {{"node", graph.text(node.name)},
          {"group", model.step_groups[model.groups[collective.launch]].name},
          {"bytes", model.bytes[collective.launch]},
          {"start_ms", milliseconds(collective.start)},
          {"end_ms", milliseconds(collective.end)},
          {"exposed_ms", milliseconds(collective.exposed)},
          {"why", text_or_null(name_of(collective.reason))},
          {"blame", name_or_null(graph, model, collective.blame)},
          {"potentially_hidden", collective.potentially_hidden},
          {"hidden_by", name_or_null(graph, model, collective.hidden_by)},
          {"op", graph.text(node.target)},
          {"module", text_or_null(graph.text(node.module))},
          {"origins", origins_report(graph, node)}};
}

// --------------------------------------------------------------------------- text

// By how many percent the makespan is above a bound; a step that takes no time is at it.
double percent_above(const OverlapSums& sums, double bound) {
  const double percent = bound > 0 ? 100 * (sums.makespan / bound - 1) : 0;
  return std::abs(percent) < 0.05 ? 0 : percent;  // no "-0.0", where the two differ by rounding
}

std::string head_text(const Graph& graph, const Simulation& simulation) {
  const OverlapSums& sums = simulation.sums;
  const StepBounds& bounds = simulation.bounds;
  const StepModel& model = simulation.model;
  const std::string changed = changed_parameters(model.cluster);
  std::string text = fmt::format("{} on {}{}, predicted\n\n", simulation.graph, model.cluster.name,
                                 changed.empty() ? "" : " (" + changed + ")");
  const auto row = [&](std::string_view name, double seconds, std::string_view note) {
    text += fmt::format("  {:<14}{:>10.2f} ms{}{}\n", name, seconds * 1e3, note.empty() ? "" : "  ", note);
  };
  row("step", sums.makespan,
      fmt::format("{:.1f} % above the lower bound", percent_above(sums, bounds.lower_bound)));
  row("compute", sums.compute, "");
  row("communication", sums.comm,
      fmt::format("{:.1f} % hidden; {} hidden, {} partly, {} not", 100 * sums.hidden,
                  counted(sums.full, "collective"), sums.part, sums.none));
  row("exposed", sums.exposed, "compute waits while something communicates");
  row("idle", sums.idle, "nothing runs");
  text += fmt::format("  {:<14}{:>14}  {} of it inputs{}{}\n\n", "peak memory",
                      memory_text(simulation.peak.bytes), memory_text(model.input_bytes),
                      model.unsized_storages == 0 ? ""
                                                  : fmt::format("; without {} of unknown size",
                                                                counted(model.unsized_storages, "tensor")),
                      simulation.peak.at == kNoPlace
                          ? ""
                          : fmt::format("; while %{} runs", name_at(graph, model, simulation.peak.at)));
  text += "Lower bounds, over all legal orders\n";
  row("critical path", bounds.critical_path, "");
  row("load", bounds.load, "of the busiest stream");
  row("one stream", bounds.head_load_tail, "head, load and tail");
  row("joints", bounds.joints, "");
  text += "\nOn a condition: over orders that keep recomputation behind the forward\n";
  row("bound", simulation.recompute_behind_forward,
      fmt::format("the step is {:.1f} % above it", percent_above(sums, simulation.recompute_behind_forward)));
  return text + "\n";
}

std::string groups_text(const Simulation& simulation) {
  const StepModel& model = simulation.model;
  if (model.step_groups.empty()) return "No collective\n";
  std::string text =
      fmt::format("{:<24}{:>6}{:>7}{:>13}{:>12}\n", "group", "ranks", "nodes", "comm ms", "exposed ms");
  for (std::size_t i = 0; i < model.step_groups.size(); ++i)
    text += fmt::format("{:<24}{:>6}{:>7}{:>13.2f}{:>12.2f}\n", model.step_groups[i].name,
                        model.step_groups[i].ranks, model.step_groups[i].nodes,
                        simulation.sums.group_comm[i] * 1e3, simulation.sums.group_exposed[i] * 1e3);
  return text + "\n";
}

std::string explain(const Graph& graph, const StepModel& model, const CollectiveExposure& found) {
  const auto name = [&](Place place) {
    return place == kNoPlace ? std::string("?") : fmt::format("%{}", name_at(graph, model, place));
  };
  const std::string by =
      found.hidden_by == kNoPlace ? "" : fmt::format("; {} could run under it", name(found.hidden_by));
  switch (found.reason) {
    case ExposureReason::kHidden:
      return "";
    case ExposureReason::kDependence:
      return fmt::format("dependence: {} needs it, and nothing else is ready",
                         found.blame == kNoPlace ? "nothing" : name(found.blame));
    case ExposureReason::kQueue:
      return fmt::format("queue: its group was busy with {}", name(found.blame));
    case ExposureReason::kLaunchedLate:
      return fmt::format("launched-late: behind {}{}", name(found.blame), by);
    case ExposureReason::kWaitedEarly:
      return fmt::format("waited-early: by {}{}", name(found.blame), by);
    case ExposureReason::kMemory:
      return fmt::format("memory: launched earlier, it would exceed the peak while {} runs",
                         name(found.blame));
    case ExposureReason::kNoCompute:
      return "no-compute: every kernel comes before it or needs it";
  }
  return "";
}

std::string collectives_text(const Graph& graph, const Simulation& simulation) {
  constexpr std::size_t kShown = 10;
  std::vector<const CollectiveExposure*> worst;
  for (const CollectiveExposure& collective : simulation.collectives)
    if (collective.reason != ExposureReason::kHidden) worst.push_back(&collective);
  if (worst.empty()) return simulation.collectives.empty() ? "" : "No collective is exposed\n";
  std::ranges::stable_sort(worst, std::greater(), &CollectiveExposure::exposed);
  std::string text = fmt::format(
      "{} of {} {} exposed{}\n", worst.size(), counted(simulation.collectives.size(), "collective"),
      is_or_are(worst.size()), worst.size() > kShown ? fmt::format("; the first {} by time", kShown) : "");
  const NodeCaptions captions(graph);
  for (std::size_t i = 0; i < std::min(worst.size(), kShown); ++i) {
    const std::string where = captions.where(simulation.model.nodes[worst[i]->launch]);
    text += fmt::format("  {:>9.3f} of {:.3f} ms  %{}{}\n             {}\n", worst[i]->exposed * 1e3,
                        (worst[i]->end - worst[i]->start) * 1e3,
                        name_at(graph, simulation.model, worst[i]->launch),
                        where.empty() ? "" : " in " + where, explain(graph, simulation.model, *worst[i]));
  }
  return text;
}

bool attends(const Graph& graph) {
  const Body& step = graph.step();
  return std::ranges::any_of(step.order, [&](NodeId id) {
    return step.nodes[id].op != nullptr && step.nodes[id].op->cost == CostClass::kAttention;
  });
}

}  // namespace

Json cluster_report(const Cluster& cluster) {
  Json report = {{"name", cluster.name}};
  for (const ClusterParameter& parameter : cluster_parameters())
    report[parameter.name] = cluster.*parameter.value;
  return report;
}

std::vector<std::string> list_assumptions(const Graph& graph, const Simulation& simulation) {
  const StepModel& model = simulation.model;
  const SourceCounts counts = count_sources(model);
  std::vector<std::string> lines = {
      "one rank's view: every other rank is taken to be as fast, and as far, as this one"};
  if (runs_on_host(graph))
    lines.emplace_back("the step was traced on the CPU: its tensors are taken to be the device's");
  if (model.assumed_symbols > 0)
    lines.push_back(fmt::format("routing is balanced: {} without a number {} the same share of the rows",
                                counted(model.assumed_symbols, "symbol"),
                                model.assumed_symbols == 1 ? "has" : "have"));
  if (!model.cluster.has_contention())
    lines.emplace_back("no contention: neither compute nor communication slows the other");
  if (model.cluster.attn_fraction < 0 && attends(graph))
    lines.emplace_back("attention is causal, inside documents of the trace's length");
  if (!model.measured_on.empty())
    lines.push_back(fmt::format("measured prices are those of {}; what is not measured is modelled for {}",
                                model.measured_on, model.cluster.name));
  if (const std::size_t n = model.unsized_storages; n > 0)
    lines.push_back(fmt::format("the peak is without {}, whose sizes have no number", counted(n, "tensor")));
  if (const std::size_t n = count_of(counts, PriceSource::kUnpriced); n > 0)
    lines.push_back(fmt::format("{} without a price {} free", counted(n, "call"), is_or_are(n)));
  return lines;
}

Json simulation_report(const Graph& graph, const Simulation& simulation) {
  const OverlapSums& sums = simulation.sums;
  Json report = {{"file", simulation.file},
                 {"cluster", cluster_report(simulation.model.cluster)},
                 {"costs", costs_report(simulation)},
                 {"assumptions", list_assumptions(graph, simulation)},
                 {"makespan_ms", milliseconds(sums.makespan)},
                 {"compute_ms", milliseconds(sums.compute)},
                 {"comm_ms", milliseconds(sums.comm)},
                 {"exposed_ms", milliseconds(sums.exposed)},
                 {"idle_ms", milliseconds(sums.idle)},
                 {"hidden", rounded_share(sums.hidden)},
                 {"peak_bytes", simulation.peak.bytes},
                 {"peak_at", name_or_null(graph, simulation.model, simulation.peak.at)},
                 {"input_bytes", simulation.model.input_bytes},
                 {"unknown_storages", simulation.model.unsized_storages},
                 {"bounds", bounds_report(simulation)},
                 {"gap", simulation.bounds.lower_bound > 0
                             ? Json(rounded_share(sums.makespan / simulation.bounds.lower_bound - 1))
                             : Json()},
                 {"groups", groups_report(simulation)}};
  Json& list = report["collectives"] = Json::array();
  for (const CollectiveExposure& collective : simulation.collectives)
    list.push_back(collective_report(graph, simulation.model, collective));
  if (simulation.measured)
    report["measured"] = measured_report(graph, simulation.model, *simulation.measured, sums);
  return report;
}

std::string simulation_text(const Graph& graph, const Simulation& simulation) {
  const SourceCounts counts = count_sources(simulation.model);
  std::string text =
      head_text(graph, simulation) + groups_text(simulation) + collectives_text(graph, simulation);
  text +=
      fmt::format("\n{} prices are measured, {} interpolated, {} modelled, {} of these for assumed extents\n",
                  count_of(counts, PriceSource::kMeasured), count_of(counts, PriceSource::kInterpolated),
                  count_of(counts, PriceSource::kModelled) + count_of(counts, PriceSource::kAssumed),
                  count_of(counts, PriceSource::kAssumed));
  text += "Assumed:\n";
  for (const std::string& line : list_assumptions(graph, simulation)) text += "  " + line + "\n";
  if (simulation.measured) text += measured_text(*simulation.measured, simulation.sums);
  return text;
}

}  // namespace epweave::cli
