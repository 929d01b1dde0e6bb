#include <fmt/format.h>

#include <algorithm>

#include "analysis/module_names.h"
#include "base/counted.h"
#include "base/memory_text.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "cost/graph_cost.h"
#include "cost/memory.h"
#include "cost/stats.h"
#include "figures.h"
#include "folding.h"
#include "kept_report.h"
#include "partition/kept_values.h"

namespace epweave::cli {
namespace {

// What `stats` counts.
struct Figures {
  GraphStats stats;
  GraphCost cost;
  MemoryEstimate memory;
  KeptValues kept;
  std::size_t assumed = 0;  // symbols taken to be balanced
};

Figures count(const Graph& graph) {
  Extents extents(graph);
  GraphCost cost = count_cost(graph, extents);
  return {count_graph(graph), std::move(cost), estimate_memory(graph, extents),
          find_kept_values(graph, Cluster{}), extents.assumed()};
}

std::string_view direction_word(bool backward) {
  return backward ? "backward" : "forward";
}

Json names_report(const Graph& graph, const std::vector<StringId>& names) {
  Json list = Json::array();
  for (StringId name : names) list.push_back(graph.text(name));
  return list;
}

Json exprs_report(const Graph& graph, const std::vector<ExprId>& exprs) {
  Json list = Json::array();
  for (ExprId expr : exprs) list.push_back(graph.context->exprs.text(expr));
  return list;
}

Json expr_or_null(const Graph& graph, std::optional<ExprId> expr) {
  return expr ? Json(graph.context->exprs.text(*expr)) : Json();
}

Json symbol_report(const Graph& graph, const Symbol& symbol) {
  return {{"name", graph.text(symbol.name)},
          {"hint", symbol.hint ? Json(*symbol.hint) : Json()},
          {"lower", expr_or_null(graph, symbol.lower)},
          {"upper", expr_or_null(graph, symbol.upper)},
          {"unbacked", symbol.unbacked ? Json(*symbol.unbacked) : Json()},
          {"asserts", exprs_report(graph, symbol.asserts.value_or(std::vector<ExprId>{}))},
          {"assumptions", exprs_report(graph, symbol.assumptions)},
          {"replaced_by", expr_or_null(graph, symbol.replaced_by)},
          {"part_of", text_or_null(graph.text(symbol.part_of))}};
}

Json group_report(const Graph& graph, const ProcessGroup& group) {
  return {{"name", graph.text(group.name)},
          {"description", text_or_null(graph.text(group.description))},
          {"ranks", group.ranks},
          {"axes", group.axes ? names_report(graph, *group.axes) : Json()},
          {"priority", text_or_null(graph.text(group.priority))},
          {"split_from", text_or_null(graph.text(group.split_from))},
          {"backend", text_or_null(graph.text(group.backend))}};
}

Json pass_report(const PassRun& run) {
  return {{"name", run.name},
          {"options", run.options},
          {"tool", run.tool},
          {"nodes_before", run.nodes_before},
          {"nodes_after", run.nodes_after},
          {"input_sha256", text_or_null(run.input_sha256)},
          {"notes", run.notes}};
}

void add_cost_report(const Graph& graph, const Figures& figures, Json& report) {
  report["cost"] = {{"flops", figures.cost.flops},
                    {"bytes", figures.cost.bytes},
                    {"not_counted", figures.cost.not_counted},
                    {"assumed_symbols", figures.assumed}};
  Json& collectives = report["collectives"] = Json::array();
  for (const CollectiveCost& row : figures.cost.collectives)
    collectives.push_back({{"group", row.group},
                           {"target", graph.text(row.target)},
                           {"launches", row.launches},
                           {"bytes", row.bytes}});
  Json& modules = report["modules"] = Json::array();
  for (const ModuleCost& row : figures.cost.modules)
    modules.push_back({{"module", text_or_null(row.module)},
                       {"calls", row.calls},
                       {"flops", row.flops},
                       {"bytes", row.bytes},
                       {"collectives", row.collectives},
                       {"collective_bytes", row.collective_bytes}});
}

void add_memory_report(const Graph& graph, const Figures& figures, Json& report) {
  const Body& step = graph.step();
  Json devices = Json::array();
  for (const DeviceMemory& device : figures.memory.devices) {
    Json largest = Json::array();
    for (const LiveStorage& storage : device.largest)
      largest.push_back({{"node", graph.text(step.nodes[storage.node].name)}, {"bytes", storage.bytes}});
    devices.push_back({{"device", text_or_null(graph.text(device.device))},
                       {"inputs", device.inputs},
                       {"peak", device.peak},
                       {"at", graph.text(step.nodes[device.at].name)},
                       {"module", text_or_null(graph.text(step.nodes[device.at].module))},
                       {"largest", std::move(largest)}});
  }
  report["memory"] = {{"devices", std::move(devices)}, {"unknown_storages", figures.memory.unknown}};
}

void add_kept_report(const Graph& graph, const KeptValues& kept, Json& report) {
  Json saved = Json::array();
  for (NodeId id : kept.cut.saved) saved.push_back(kept_row(graph, id, kept.costs));
  report["saved"] = {{"saved", std::move(saved)},
                     {"saved_bytes", kept.totals.bytes},
                     {"gathered_bytes", kept.totals.gathered},
                     {"recomputed", list_recomputed(graph, kept.cut, kept.costs)},
                     {"recompute_flops", kept.totals.flops},
                     {"recompute_seconds", kept.totals.seconds}};
}

Json stats_report(const std::string& file, const Graph& graph, const Figures& figures) {
  const GraphStats& stats = figures.stats;
  Json report = {{"file", file},
                 {"nodes", stats.nodes},
                 {"calls", stats.calls},
                 {"placeholders", stats.placeholders},
                 {"attributes", stats.attributes},
                 {"outputs", graph.outputs.size()}};
  Json& targets = report["targets"] = Json::object();
  for (const auto& [target, count] : stats.targets) targets[std::string(graph.text(target))] = count;
  report["unknown_targets"] = names_report(graph, stats.unknown_targets);
  Json& regions = report["regions"] = Json::array();
  for (const RegionStats& region : stats.regions)
    regions.push_back({{"root", graph.text(region.root)},
                       {"direction", direction_word(region.backward)},
                       {"parts", region.parts},
                       {"exchanges", region.exchanges}});
  report["provenance_coverage"] = stats.provenance_coverage();
  add_cost_report(graph, figures, report);
  report["module_patterns"] = list_module_patterns(graph);
  add_memory_report(graph, figures, report);
  add_kept_report(graph, figures.kept, report);
  Json& symbols = report["symbols"] = Json::array();
  for (const Symbol& symbol : graph.symbols) symbols.push_back(symbol_report(graph, symbol));
  Json& groups = report["groups"] = Json::array();
  for (const ProcessGroup& group : graph.groups) groups.push_back(group_report(graph, group));
  Json& bodies = report["bodies"] = Json::array();
  for (const Body& body : graph.bodies)
    bodies.push_back({{"name", graph.text(body.name)}, {"nodes", body.order.size()}});
  Json& passes = report["passes"] = Json::array();
  for (const PassRun& run : graph.passes) passes.push_back(pass_report(run));
  return report;
}

// What backward reads of forward, and does again; nothing of a graph of one direction.
std::string kept_line(const KeptValues& kept) {
  if (kept.cut.saved.empty()) return {};
  const auto copies = static_cast<std::size_t>(std::ranges::count(kept.cut.recomputed, 1));
  std::string text = fmt::format("{:<22}{}", "saved for backward", memory_text(kept.totals.bytes));
  if (kept.totals.gathered != 0)
    text += fmt::format(", {} of them gathered parameters", memory_text(kept.totals.gathered));
  if (copies != 0)
    text += fmt::format("; {} done again, {:.4g} ms", counted(copies, "call"), kept.totals.seconds * 1e3);
  return text + "\n";
}

std::string cost_table(const Graph& graph, const Figures& figures) {
  const GraphCost& cost = figures.cost;
  std::string text = fmt::format("{:<22}{}\n{:<22}{}\n", "flops", metric(cost.flops, "flop"),
                                 "kernel traffic", metric(cost.bytes, "B"));
  for (const DeviceMemory& device : figures.memory.devices) {
    const Node& at = graph.step().nodes[device.at];
    text += fmt::format("{:<22}{} with {} of inputs, at %{}{}\n",
                        fmt::format("peak on {}", graph.text(device.device)), memory_text(device.peak),
                        memory_text(device.inputs), graph.text(at.name),
                        at.module ? fmt::format(" @{}", graph.text(at.module)) : "");
  }
  text += kept_line(figures.kept);
  text += assumed_text(figures.assumed);
  const std::size_t unknown = cost.not_counted + figures.memory.unknown;
  if (unknown != 0)
    text += fmt::format("not counted for want of a size: calls {}, storages {}\n", cost.not_counted,
                        figures.memory.unknown);
  if (!cost.collectives.empty()) text += "\ncollectives by group\n";
  for (const CollectiveCost& row : cost.collectives)
    text += fmt::format("  {:<20} {:<50} {:>7} {:>10}\n", row.group, graph.text(row.target), row.launches,
                        metric(row.bytes, "B"));
  text += fmt::format("\n{:<30} {:>8} {:>12} {:>12} {:>12} {:>10}\n", "module", "calls", "flops", "traffic",
                      "collectives", "messages");
  for (const ModuleCost& row : cost.modules)
    text += fmt::format("  {:<28} {:>8} {:>12} {:>12} {:>12} {:>10}\n",
                        row.module.empty() ? "(no module)" : row.module, row.calls, metric(row.flops, "flop"),
                        metric(row.bytes, "B"), row.collectives, metric(row.collective_bytes, "B"));
  return text;
}

std::string stats_table(const Graph& graph, const Figures& figures) {
  const GraphStats& stats = figures.stats;
  std::string text = fmt::format("{:<22}{}\n{:<22}{}\n{:<22}{}\n{:<22}{}\n{:<22}{:.1f} %\n", "nodes",
                                 stats.nodes, "calls", stats.calls, "inputs", stats.placeholders, "outputs",
                                 graph.outputs.size(), "with provenance", 100 * stats.provenance_coverage());
  text += fmt::format("{:<22}{}\n{:<22}{}\n{:<22}{}\n", "symbols", graph.symbols.size(), "process groups",
                      graph.groups.size(), "nested graphs", graph.bodies.size() - 1);
  text += cost_table(graph, figures);
  if (!graph.passes.empty()) text += "\npasses\n";
  for (const PassRun& run : graph.passes)
    text +=
        fmt::format("  {}{} {} -> {} nodes\n", run.name, run.options.empty() ? "" : "{" + run.options + "}",
                    run.nodes_before, run.nodes_after);
  if (!stats.regions.empty()) text += "\nregions\n";
  std::vector<FoldableRow> regions;
  for (const RegionStats& region : stats.regions)
    regions.push_back({std::string(graph.text(region.root)),
                       fmt::format("{:<9} {}  {}", direction_word(region.backward),
                                   counted(region.parts, "part"), counted(region.exchanges, "exchange"))});
  for (const FoldedRows& fold : fold_rows(regions)) {
    const std::size_t n = fold.members.size();
    text += fmt::format("  {:<32} {}{}\n", fold.path, regions[fold.members.front()].content,
                        n == 1 ? "" : fmt::format(" each, x {}", n));
  }
  text += "\ncall targets\n";
  for (const auto& [target, count] : stats.targets)
    text += fmt::format("  {:>7}  {}\n", count, graph.text(target));
  if (!stats.unknown_targets.empty()) text += "\ntargets that the op table lacks\n";
  for (StringId target : stats.unknown_targets) text += fmt::format("  {}\n", graph.text(target));
  return text;
}

// ----------------------------------------------------------------------------- several graphs

struct Row {
  std::string label, value;
};

std::vector<Row> rows_of(const Graph& graph, const Figures& figures) {
  const GraphStats& stats = figures.stats;
  std::vector<Row> rows = {{"nodes", std::to_string(stats.nodes)},
                           {"calls", std::to_string(stats.calls)},
                           {"inputs", std::to_string(stats.placeholders)},
                           {"outputs", std::to_string(graph.outputs.size())},
                           {"with provenance", fmt::format("{:.1f} %", 100 * stats.provenance_coverage())},
                           {"passes", std::to_string(graph.passes.size())},
                           {"divided regions", std::to_string(stats.regions.size())},
                           {"symbols", std::to_string(graph.symbols.size())},
                           {"process groups", std::to_string(graph.groups.size())},
                           {"nested graphs", std::to_string(graph.bodies.size() - 1)},
                           {"flops", metric(figures.cost.flops, "flop")},
                           {"kernel traffic", metric(figures.cost.bytes, "B")},
                           {"symbols assumed", std::to_string(figures.assumed)},
                           {"calls not counted", std::to_string(figures.cost.not_counted)},
                           {"storages not counted", std::to_string(figures.memory.unknown)}};
  for (const DeviceMemory& device : figures.memory.devices)
    rows.push_back({fmt::format("peak on {}", graph.text(device.device)), memory_text(device.peak)});
  if (!figures.kept.cut.saved.empty())
    rows.push_back({"saved for backward", memory_text(figures.kept.totals.bytes)});
  for (const CollectiveCost& row : figures.cost.collectives) {
    const std::string name = fmt::format("{} {}", row.group, graph.text(row.target));
    rows.push_back({name, fmt::format("{}, {}", row.launches, metric(row.bytes, "B"))});
  }
  return rows;
}

// A column for each graph, a row for each figure that one of them has, in the order in which they
// come up. "-": it has none.
std::string columns_text(const std::vector<std::string>& files,
                         const std::vector<std::vector<Row>>& columns) {
  std::vector<std::string> labels;
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    widths.push_back(std::to_string(i + 1).size());
    for (const Row& row : columns[i]) {
      widths[i] = std::max(widths[i], row.value.size());
      if (std::ranges::find(labels, row.label) == labels.end()) labels.push_back(row.label);
    }
  }
  std::size_t width = 0;
  for (const std::string& label : labels) width = std::max(width, label.size());
  std::string text;
  for (std::size_t i = 0; i < files.size(); ++i) text += fmt::format("{}  {}\n", i + 1, files[i]);
  text += fmt::format("\n{:<{}}", "", width);
  for (std::size_t i = 0; i < files.size(); ++i) text += fmt::format("  {:>{}}", i + 1, widths[i]);
  text += "\n";
  for (const std::string& label : labels) {
    text += fmt::format("{:<{}}", label, width);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const auto row = std::ranges::find(columns[i], label, &Row::label);
      text += fmt::format("  {:>{}}", row == columns[i].end() ? "-" : row->value, widths[i]);
    }
    text += "\n";
  }
  return text;
}

int stats_of_several(const std::vector<InputOptions>& inputs, Console& console) {
  Json reports = Json::array();
  std::vector<std::string> files;
  std::vector<std::vector<Row>> columns;
  for (const InputOptions& input : inputs) {
    const Graph graph = read_sound_input(input);
    const Figures figures = count(graph);
    if (console.json()) reports.push_back(stats_report(input.path, graph, figures));
    files.push_back(display_name(input));
    columns.push_back(rows_of(graph, figures));
  }
  console.print(console.json() ? report_text({{"graphs", std::move(reports)}})
                               : columns_text(files, columns));
  return kFine;
}

}  // namespace

int stats(const std::vector<InputOptions>& inputs, Console& console) {
  if (inputs.size() > 1) return stats_of_several(inputs, console);
  const InputOptions& options = inputs.front();
  const Graph graph = read_sound_input(options);
  const Figures figures = count(graph);
  console.print(console.json() ? report_text(stats_report(options.path, graph, figures))
                               : stats_table(graph, figures));
  return kFine;
}

}  // namespace epweave::cli
