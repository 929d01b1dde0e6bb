// The command line: what it may say, and what it said.
#pragma once

#include <functional>
#include <string>

#include "commands.h"

namespace epweave::cli {

struct CommandLine {
  ConsoleOptions console;
  std::string subject;  // the file that errors are about
  std::function<int(Console&)> run;
};

// Throws UsageError.
CommandLine parse_command_line(int argc, char** argv);

}  // namespace epweave::cli
