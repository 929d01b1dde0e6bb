#include "replay_commands.h"

#include "graphs.h"
#include "replay/steps.h"
#include "replay_setup.h"

namespace epweave::cli {

int replay_steps(const InputOptions& options, Console& console) {
  const Graph graph = read_sound_input(options);
  const replay::Steps steps = replay::plan_steps(graph, graph.step());
  if (!console.json()) return console.print(replay::print_steps(graph, graph.step(), steps)), kFine;
  console.print(
      report_text({{"streams", steps.streams}, {"events", steps.events}, {"steps", steps.list.size()}}));
  return kFine;
}

int replay_recipe(Console& console) {
  return console.print(replay::torchtitan_recipe_text()), kFine;
}

}  // namespace epweave::cli
