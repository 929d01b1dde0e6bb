#include "replay_commands.h"

#include "graphs.h"
#include "replay/steps.h"
#include "replay_setup.h"

namespace epweave::cli {
namespace {

Json describe_steps(const Graph& graph, const replay::Steps& steps) {
  Json list = Json::array();
  for (const replay::Step& step : steps.list) {
    Json entry = {{"kind", replay::name_of(step.kind)}};
    if (replay::has_node(step.kind)) {
      const Node& node = graph.step().nodes[step.node];
      entry["node"] = graph.text(node.name);
      if (node.kind == NodeKind::kCall) entry["target"] = graph.text(node.target);
    }
    if (replay::has_stream(step.kind)) entry["stream"] = steps.streams[step.stream];
    if (step.event != replay::kNoEvent) entry["event"] = step.event;
    list.push_back(std::move(entry));
  }
  return {{"streams", steps.streams}, {"events", steps.events}, {"steps", std::move(list)}};
}

}  // namespace

int replay_steps(const InputOptions& options, Console& console) {
  const Graph graph = read_sound_input(options);
  const replay::Steps steps = replay::plan_steps(graph, graph.step());
  if (!console.json()) return console.print(replay::print_steps(graph, graph.step(), steps)), kFine;
  console.print(report_text(describe_steps(graph, steps)));
  return kFine;
}

int replay_recipe(Console& console) {
  return console.print(replay::torchtitan_recipe_text()), kFine;
}

}  // namespace epweave::cli
