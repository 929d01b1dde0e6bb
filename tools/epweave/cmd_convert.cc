#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"

namespace epweave::cli {

int convert(const ConvertOptions& options, Console& console) {
  check_output(options.output);
  if (console.json() && options.output.path == "-")
    throw UsageError("--json and the graph cannot both go to standard output: give OUT a file name");
  const Graph graph = read_sound_input(options.input);
  write_output(graph, options.output);
  if (console.json())
    console.print(report_text({{"input", file_report(options.input.path)},
                               {"output", file_report(options.output.path)},
                               {"nodes", graph.step().order.size()}}));
  return kFine;
}

}  // namespace epweave::cli
