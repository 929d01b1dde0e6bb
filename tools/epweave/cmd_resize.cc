#include "resize/resize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/parse_number.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "common/version.h"

namespace epweave::cli {
namespace {

// "tokens=4096"
SizeSetting read_setting(const std::string& text) {
  const auto equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const auto value = parse_number<std::int64_t>(equals == text.npos ? "" : text.substr(equals + 1));
  if (name.empty() || !value || *value < 1)
    throw UsageError(fmt::format("--set {}: write NAME=N, with a whole number of 1 or more", text));
  return {.name = name, .value = *value};
}

std::vector<SizeSetting> read_settings(const ResizeCommand& command) {
  std::vector<SizeSetting> settings;
  for (const std::string& text : command.set) {
    settings.push_back(read_setting(text));
    for (std::size_t i = 0; i + 1 < settings.size(); ++i)
      if (settings[i].name == settings.back().name)
        throw UsageError(fmt::format("--set {}: the size is set twice", text));
  }
  if (settings.empty() && !command.list)
    throw UsageError("give a size: --set tokens=512; --list says which there are");
  if (!settings.empty() && command.list) throw UsageError("--list writes nothing: leave out --set");
  if (command.list && command.output.path != OutputOptions().path)
    throw UsageError("--list writes nothing: leave out -o");
  return settings;
}

int list(const ResizeCommand& command, Console& console) {
  const std::vector<NamedSize> sizes = list_sizes(read_sound_input(command.input));
  if (console.json()) {
    Json rows = Json::array();
    for (const NamedSize& size : sizes)
      rows.push_back({{"name", size.name},
                      {"value", size.value},
                      {"form", size.form},
                      {"divisor", size.divisor},
                      {"appears", size.appears}});
    console.print(report_text({{"input", file_report(command.input.path)}, {"sizes", rows}}));
    return kFine;
  }
  std::string text;
  for (const NamedSize& size : sizes)
    text += fmt::format("{:<10} {:>8}  {:<8} {}{}\n", size.name, size.value, size.form,
                        fmt::join(size.appears, ", "),
                        size.divisor > 1 ? fmt::format("; a multiple of {}", size.divisor) : "");
  console.print(text.empty() ? "no size can be set\n" : text);
  return kFine;
}

}  // namespace

int resize(const ResizeCommand& command, Console& console) {
  const std::vector<SizeSetting> settings = read_settings(command);
  if (command.list) return list(command, console);
  if (console.json() && command.output.path == "-")
    throw UsageError("--json and the graph cannot both go to standard output: give -o FILE");
  check_output(command.output);
  const Graph graph = read_sound_input(command.input);
  Resized made = epweave::resize(graph, settings);
  const std::size_t before = graph.step().order.size(), after = made.graph.step().order.size();
  std::vector<std::string> set;
  for (const SizeSetting& setting : settings)
    set.push_back(fmt::format("{}={}", setting.name, setting.value));
  made.graph.passes.push_back({.name = "resize",
                               .options = fmt::format("{}", fmt::join(set, ",")),
                               .tool = tool_name(),
                               .nodes_before = static_cast<std::uint32_t>(before),
                               .nodes_after = static_cast<std::uint32_t>(after),
                               .input_sha256 = sha256_of_graph(graph),
                               .notes = made.notes});
  write_output(made.graph, command.output);
  const std::string said = fmt::format("{}: {} of {} nodes, {}",
                                       command.output.path == "-" ? "standard output" : command.output.path,
                                       after, before, fmt::join(set, ", "));
  if (console.json())
    console.print(report_text({{"input", file_report(command.input.path)},
                               {"output", file_report(command.output.path)},
                               {"set", set},
                               {"nodes_before", before},
                               {"nodes_after", after},
                               {"notes", made.notes}}));
  const bool is_quiet = command.output.path == "-" || console.json();
  for (const std::string& note : made.notes) is_quiet ? console.detail(note) : console.info(note);
  is_quiet ? console.detail(said) : console.info(said);
  return kFine;
}

}  // namespace epweave::cli
