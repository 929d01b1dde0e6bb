#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "common/version.h"
#include "extract/extract.h"

namespace epweave::cli {
namespace {

constexpr std::size_t kShownNames = 8;

ExtractDirection direction_named(const std::string& name) {
  if (name == "fwd") return ExtractDirection::kForward;
  return name == "bwd" ? ExtractDirection::kBackward : ExtractDirection::kBoth;
}

// "2 (%a, %b)"
std::string count_and_names(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  std::string text = fmt::format("{} (", names.size());
  for (std::size_t i = 0; i < names.size() && i < kShownNames; ++i)
    text += fmt::format("{}%{}", i == 0 ? "" : ", ", names[i]);
  return text + (names.size() > kShownNames ? ", ..)" : ")");
}

// " of layers.3.moe", " of 4 modules"
std::string modules_text(const std::vector<std::string>& modules) {
  if (modules.size() > 1) return fmt::format(" of {} modules", modules.size());
  return fmt::format(" of {}", modules.front());
}

}  // namespace

int extract(const ExtractCommand& command, Console& console) {
  if (command.modules.empty() || std::ranges::find(command.modules, "") != command.modules.end())
    throw UsageError("give the module to extract: --module layers.3.moe");
  if (console.json() && command.output.path == "-")
    throw UsageError("--json and the graph cannot both go to standard output: give -o FILE");
  check_output(command.output);
  const Graph graph = read_sound_input(command.input);
  Extraction made = epweave::extract(
      graph,
      {.modules = command.modules, .direction = direction_named(command.direction), .count = command.count});
  const std::size_t before = graph.step().order.size(), after = made.graph.step().order.size();
  made.graph.passes.push_back(
      {.name = "extract",
       .options =
           fmt::format("module=[{}],direction={}{}", fmt::join(command.modules, ","), command.direction,
                       command.count ? fmt::format(",count={}", *command.count) : ""),
       .tool = tool_name(),
       .nodes_before = static_cast<std::uint32_t>(before),
       .nodes_after = static_cast<std::uint32_t>(after),
       .input_sha256 = sha256_of_graph(graph)});
  write_output(made.graph, command.output);
  const std::string said =
      fmt::format("{}: {} of {} nodes{}; from outside: {}; used outside: {}",
                  command.output.path == "-" ? "standard output" : command.output.path, after, before,
                  modules_text(made.modules), count_and_names(made.entering), count_and_names(made.leaving));
  if (console.json())
    console.print(report_text({{"input", file_report(command.input.path)},
                               {"output", file_report(command.output.path)},
                               {"modules", made.modules},
                               {"direction", command.direction},
                               {"nodes_before", before},
                               {"nodes_after", after},
                               {"inputs", made.graph.inputs.size()},
                               {"outputs", made.graph.outputs.size()},
                               {"entering", made.entering},
                               {"leaving", made.leaving}}));
  if (command.output.path == "-" || console.json())
    console.detail(said);
  else
    console.info(said);
  return kFine;
}

}  // namespace epweave::cli
