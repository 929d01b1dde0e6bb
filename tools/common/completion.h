// Completion scripts and the manual page, written from what the commands of a program accept.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace epweave::cli {

struct OptionHelp {
  std::vector<std::string> names;  // "-o", "--output"; the placeholder of a positional
  std::string value;               // placeholder; empty: a flag
  std::string help;
  std::vector<std::string> choices;
  std::vector<std::string>
      beginnings;  // what an item of the value, a list with commas, may begin with: "chunk"
  // What may stand in braces behind a beginning: "chunk" has "parts=", "dim=batch". Those that
  // begin with "roots=" take modules of the graph.
  std::vector<std::pair<std::string, std::vector<std::string>>> inside;
  bool takes_module = false;  // the value is a module of the graph
  bool positional = false;
};

struct CommandHelp {
  std::string name, summary, footer;
  std::vector<OptionHelp> options;
};

struct ProgramHelp {
  std::string name;         // "epweave"
  std::string purpose;      // behind the name in the manual page: "rewrite PyTorch MoE training graphs"
  std::string description;  // paragraph of the manual page
  std::vector<std::pair<std::string, std::string>> sections;  // of the manual page, in man(7): title and text
  std::vector<CommandHelp> commands;
};

// command_help.cc.
std::vector<CommandHelp> list_commands(const CLI::App& app);

// For "bash", "zsh" and "fish" the completion script, for "man" the source of the manual page.
std::string completion(const ProgramHelp& program, std::string_view kind);

}  // namespace epweave::cli
