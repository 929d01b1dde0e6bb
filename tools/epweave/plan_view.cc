#include "plan_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/graphs.h"
#include "common/report.h"
#include "common/version.h"
#include "passes/chunk/chunk_report.h"
#include "pipeline/registry.h"

namespace epweave::cli {
namespace {

Json values_report(const std::vector<RegionReport::Value>& values) {
  Json list = Json::array();
  for (const RegionReport::Value& value : values)
    list.push_back({{"value", value.name}, {"type", value.type}, {"how", value.how}, {"why", value.why}});
  return list;
}

Json region_report(const RegionReport& region) {
  Json rows = Json::array(), nodes = Json::array();
  for (const RegionReport::Rows& each : region.rows)
    rows.push_back({{"symbol", each.symbol}, {"extents", each.extents}, {"numbers", each.numbers}});
  for (const RegionReport::Placed& node : region.nodes)
    nodes.push_back({{"name", node.name},
                     {"target", node.target},
                     {"placement", node.placement},
                     {"reason", node.reason},
                     {"numerics", node.numerics}});
  return {{"root", region.root},
          {"direction", region.backward ? "backward" : "forward"},
          {"parts", region.parts},
          {"rows", std::move(rows)},
          {"cut", values_report(region.cut)},
          {"joined", values_report(region.joined)},
          {"taken_in_parts", region.handed_over},
          {"runs_once", region.once},
          {"proved", {{"rows", region.proved}, {"exchanges", region.proved_exchanges}}},
          {"assumptions", region.assumptions},
          {"nodes", std::move(nodes)}};
}

std::string plan_text(const ChunkReport& report) {
  std::string text;
  for (const std::string& line : list_decisions({report.assumptions, {}})) text += line + "\n";
  for (const RegionReport& region : report.regions) {
    text += text.empty() ? "" : "\n";
    for (const std::string& line : list_decisions({{}, {region}})) text += line + "\n";
    std::size_t name = 0, placement = 0, reason = 0;
    for (const RegionReport::Placed& node : region.nodes) {
      name = std::max(name, node.name.size() + 1);
      placement = std::max(placement, node.placement.size());
      reason = std::max(reason, node.reason.size());
    }
    text += fmt::format("  nodes: {} divided, {} run once\n", region.nodes.size(), region.once);
    for (const RegionReport::Placed& node : region.nodes)
      text += fmt::format("    {:{}}  {:{}}  {:{}}  {}\n", "%" + node.name, name, node.placement, placement,
                          node.reason, reason, node.numerics);
  }
  return text;
}

ChunkReport report_of(const Graph& graph, const Options& options, const Graph* lowered) {
  const ChunkPlan plan = plan_chunks(graph, read_chunk_options(options));
  return report_chunks(graph, plan, lowered != nullptr ? *lowered : lower_chunks(graph, plan));
}

}  // namespace

int show_plan(const RewriteOptions& options, const Pipeline& pipeline, Console& console) {
  const auto chunk =
      std::ranges::find_if(pipeline.calls, [](auto& call) { return call.pass->name == "chunk"; });
  if (chunk == pipeline.calls.end())
    throw UsageError("--print-plan: the pipeline has no chunk, and only chunk makes a plan");
  Pipeline before = pipeline;
  before.calls.erase(before.calls.begin() + (chunk - pipeline.calls.begin()), before.calls.end());
  const Graph input = read_sound_input(options.input);
  const RunnerOptions runner{.tool = tool_name()};
  const Graph graph = before.calls.empty() ? input : run_pipeline(input, before, runner);
  const ChunkReport report = report_of(graph, chunk->options, nullptr);
  if (!console.json()) {
    console.print(plan_text(report));
    return kFine;
  }
  Json regions = Json::array();
  for (const RegionReport& region : report.regions) regions.push_back(region_report(region));
  console.print(report_text({{"options", print_options(chunk->options)},
                             {"assumptions", report.assumptions},
                             {"regions", std::move(regions)}}));
  return kFine;
}

std::optional<ChunkReport> plan_of_rewrite(const Graph& a, const Graph& b) {
  Pipeline before;
  for (std::size_t i = a.passes.size(); i < b.passes.size(); ++i) {
    const PassRun& run = b.passes[i];
    const Pipeline call = parse_pipeline(fmt::format("{}{{{}}}", run.name, run.options));
    if (run.name == "chunk")
      return report_of(before.calls.empty() ? a : run_pipeline(a, before, {.tool = tool_name()}),
                       call.calls.front().options, nullptr);
    before.calls.insert(before.calls.end(), call.calls.begin(), call.calls.end());
  }
  return std::nullopt;
}

std::vector<std::string> list_plan_decisions(const PassReport& pass) {
  return list_decisions(report_of(pass.before, pass.call.options, &pass.after));
}

}  // namespace epweave::cli
