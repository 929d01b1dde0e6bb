#include "replay_commands.h"

#include "common/graphs.h"
#include "replay/kernels/device/host_waits.h"
#include "replay/steps/stretches.h"
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

Json describe_stretches(const std::vector<replay::Stretch>& stretches) {
  Json list = Json::array();
  for (const replay::Stretch& stretch : stretches)
    list.push_back({{"first_step", stretch.first},
                    {"end_step", stretch.end},
                    {"launches", stretch.launches},
                    {"until", stretch.cut}});
  return list;
}

}  // namespace

int replay_steps(const StepsCommandOptions& options, Console& console) {
  const Graph graph = read_written_out(options.input);
  const replay::Steps steps = replay::plan_steps(graph, graph.step());
  std::vector<replay::Stretch> stretches;
  if (options.cuda_graphs)
    stretches = replay::plan_stretches(graph.step(), steps, [&](const Node& node) {
      return replay::device::find_host_wait(graph, node, replay::Math::kPortable);
    });
  if (!console.json()) {
    const std::string text = replay::print_steps(graph, graph.step(), steps);
    return console.print(options.cuda_graphs ? replay::print_stretches(text, stretches) : text), kFine;
  }
  Json report = file_report(options.input.path);
  report.update(describe_steps(graph, steps));
  if (options.cuda_graphs) report["graphs"] = describe_stretches(stretches);
  console.print(report_text(report));
  return kFine;
}

int replay_recipe(Console& console) {
  return console.print(replay::torchtitan_recipe_text()), kFine;
}

}  // namespace epweave::cli
