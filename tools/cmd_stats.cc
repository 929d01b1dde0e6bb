#include <fmt/format.h>

#include "analysis/stats.h"
#include "commands.h"
#include "graphs.h"
#include "report.h"

namespace epweave::cli {
namespace {

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

Json stats_report(const Graph& graph, const GraphStats& stats) {
  Json report = {{"nodes", stats.nodes},
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

std::string stats_table(const Graph& graph, const GraphStats& stats) {
  std::string text = fmt::format("{:<22}{}\n{:<22}{}\n{:<22}{}\n{:<22}{}\n{:<22}{:.1f} %\n", "nodes",
                                 stats.nodes, "calls", stats.calls, "inputs", stats.placeholders, "outputs",
                                 graph.outputs.size(), "with provenance", 100 * stats.provenance_coverage());
  text += fmt::format("{:<22}{}\n{:<22}{}\n{:<22}{}\n", "symbols", graph.symbols.size(), "process groups",
                      graph.groups.size(), "nested graphs", graph.bodies.size() - 1);
  if (!graph.passes.empty()) text += "\npasses\n";
  for (const PassRun& run : graph.passes)
    text +=
        fmt::format("  {}{} {} -> {} nodes\n", run.name, run.options.empty() ? "" : "{" + run.options + "}",
                    run.nodes_before, run.nodes_after);
  if (!stats.regions.empty()) text += "\nregions\n";
  for (const RegionStats& region : stats.regions)
    text += fmt::format("  {:<32} {:<9} {} parts  {} exchanges\n", graph.text(region.root),
                        direction_word(region.backward), region.parts, region.exchanges);
  text += "\ncall targets\n";
  for (const auto& [target, count] : stats.targets)
    text += fmt::format("  {:>7}  {}\n", count, graph.text(target));
  if (!stats.unknown_targets.empty()) text += "\ntargets that the op table lacks\n";
  for (StringId target : stats.unknown_targets) text += fmt::format("  {}\n", graph.text(target));
  return text;
}

}  // namespace

int stats(const InputOptions& options, Console& console) {
  const Graph graph = read_sound_input(options);
  const GraphStats stats = count_graph(graph);
  console.print(console.json() ? report_text(stats_report(graph, stats)) : stats_table(graph, stats));
  return kFine;
}

}  // namespace epweave::cli
