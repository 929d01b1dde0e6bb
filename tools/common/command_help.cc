// What CLI11 knows of a program's commands, for completion.cc.
#include <CLI/CLI.hpp>
#include <utility>

#include "completion.h"

namespace epweave::cli {
namespace {

OptionHelp describe_option(const CLI::Option& option) {
  OptionHelp help{.help = option.get_description(), .positional = !option.nonpositional()};
  if (help.positional) help.names.push_back(option.get_name());
  for (const std::string& name : option.get_snames()) help.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) help.names.push_back("--" + name);
  if (option.get_items_expected_max() == 0) return help;
  const std::string type = option.get_type_name();  // "WHEN:{auto,always,never}"
  help.value = type.substr(0, type.find(':'));
  const std::size_t open = type.find('{');
  for (std::size_t at = open; at < type.size() && type[at] != '}';) {
    const std::size_t end = type.find_first_of(",}", at + 1);
    help.choices.push_back(type.substr(at + 1, end - at - 1));
    at = end;
  }
  if (option.get_delimiter() != '\0') help.beginnings = std::exchange(help.choices, {});
  return help;
}

}  // namespace

std::vector<CommandHelp> list_commands(const CLI::App& app) {
  std::vector<CommandHelp> commands;
  for (const CLI::App* command : app.get_subcommands({})) {
    CommandHelp& help = commands.emplace_back();
    help.name = command->get_name();
    help.summary = command->get_description();
    help.footer = command->get_footer();
    for (const CLI::Option* option : command->get_options()) help.options.push_back(describe_option(*option));
  }
  return commands;
}

}  // namespace epweave::cli
