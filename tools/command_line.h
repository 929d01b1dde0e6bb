// The command line: what it may say, and what it said.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "commands.h"

namespace epweave::cli {

struct CommandLine {
  ConsoleOptions console;
  std::string subject;  // the file that errors are about
  std::function<int(Console&)> run;
};

// Throws UsageError.
CommandLine parse_command_line(int argc, char** argv);

// What a command accepts; completion scripts and manual pages are written from it.
struct OptionHelp {
  std::vector<std::string> names;  // "-o", "--output"; the placeholder of a positional
  std::string value;               // placeholder; empty: a flag
  std::string help;
  std::vector<std::string> choices;
  bool positional = false;
};

struct CommandHelp {
  std::string name, summary, footer;
  std::vector<OptionHelp> options;
};

}  // namespace epweave::cli
