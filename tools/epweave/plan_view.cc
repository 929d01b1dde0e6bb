#include "plan_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "common/graphs.h"
#include "common/report.h"
#include "common/version.h"
#include "cost/stats.h"
#include "passes/chunk/chunk_report.h"
#include "pipeline/bind.h"
#include "pipeline/registry.h"
#include "pipeline/rows/chunk_row.h"

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
  for (const RegionReport::PartRows& each : region.rows)
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

// The call of chunk that divides what choose-chunks has divided: nothing where it left the graph
// whole. Its result says which modules, and into how many parts.
std::optional<PassCall> chosen_chunk(const PassCall& choice, const Graph& before, const Graph& result) {
  std::set<std::string> known, roots;
  for (const RegionStats& region : count_graph(before).regions) known.emplace(before.text(region.root));
  for (const RegionStats& region : count_graph(result).regions)
    if (const std::string root(result.text(region.root)); !known.contains(root))
      roots.insert(fmt::format("{}:{}", root, region.parts));
  if (roots.empty()) return std::nullopt;
  std::string options = fmt::format("roots=[{}],dense=true", fmt::join(roots, ","));
  if (choice.options.has("attention"))
    options += fmt::format(",attention={}", choice.options.text("attention"));
  return parse_pipeline(fmt::format("chunk{{{}}}", options)).calls.front();
}

// What divides modules: chunk, and choose-chunks, which decides whether to.
bool divides(const PassCall& call) {
  return call.pass->name == "chunk" || call.pass->name == "choose-chunks";
}

std::string notes_text(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes)
    if (is_choice_note(note)) text += note + "\n";
  return text;
}

}  // namespace

bool is_choice_note(std::string_view note) {
  return note.starts_with("choice") || is_trial_note(note) || note.starts_with("predicted");
}

bool is_trial_note(std::string_view note) {
  return note.starts_with("trial");
}

int show_plan(const RewriteOptions& options, const Pipeline& pipeline, Console& console) {
  const auto call = std::ranges::find_if(pipeline.calls, divides);
  if (call == pipeline.calls.end())
    throw UsageError(
        "--print-plan: the pipeline has neither chunk nor choose-chunks, and only they make a plan");
  Pipeline before = pipeline;
  before.calls.erase(before.calls.begin() + (call - pipeline.calls.begin()), before.calls.end());
  const Graph input = read_sound_input(options.input);
  const RunnerOptions runner{.tool = tool_name()};
  const Graph graph = before.calls.empty() ? input : run_pipeline(input, before, runner);
  std::optional<PassCall> chunk = *call;
  std::vector<std::string> notes;
  if (call->pass->name != "chunk") {
    const PassCall bound = Binder(input, pipeline).bind(before.calls.size(), graph);
    const PassResult chosen = bound.pass->run(graph, bound.options);
    chunk = chosen_chunk(bound, graph, chosen.graph);
    notes = chosen.notes;
  }
  const ChunkReport report = chunk ? report_of(graph, chunk->options, nullptr) : ChunkReport{};
  if (!console.json()) {
    console.print(notes_text(notes) + (notes.empty() || !chunk ? "" : "\n") + plan_text(report));
    return kFine;
  }
  Json regions = Json::array();
  for (const RegionReport& region : report.regions) regions.push_back(region_report(region));
  console.print(report_text({{"file", options.input.path},
                             {"options", chunk ? Json(print_options(chunk->options)) : Json()},
                             {"notes", notes},
                             {"assumptions", report.assumptions},
                             {"regions", std::move(regions)}}));
  return kFine;
}

std::optional<ChunkReport> plan_of_rewrite(const Graph& a, const Graph& b) {
  Pipeline before;
  for (std::size_t i = a.passes.size(); i < b.passes.size(); ++i) {
    const PassRun& run = b.passes[i];
    const Pipeline call = parse_pipeline(fmt::format("{}{{{}}}", run.name, run.options));
    if (divides(call.calls.front())) {
      const Graph graph = before.calls.empty() ? a : run_pipeline(a, before, {.tool = tool_name()});
      const std::optional<PassCall> chunk =
          run.name == "chunk" ? call.calls.front() : chosen_chunk(call.calls.front(), graph, b);
      if (chunk) return report_of(graph, chunk->options, nullptr);
    }
    before.calls.insert(before.calls.end(), call.calls.begin(), call.calls.end());
  }
  return std::nullopt;
}

std::vector<std::string> list_plan_decisions(const PassReport& pass) {
  return list_decisions(report_of(pass.before, pass.call.options, &pass.after));
}

}  // namespace epweave::cli
