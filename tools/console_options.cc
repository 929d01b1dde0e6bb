#include "console_options.h"

#include <CLI/CLI.hpp>

namespace epweave::cli {

void add_console(CLI::App& command, ConsoleOptions& console) {
  command.add_flag("--json", console.json,
                   "Give the result, or the error, as one JSON document on standard output");
  command.add_flag("-v,--verbose", console.verbose, "Say more on standard error");
  command.add_flag("-q,--quiet", console.quiet, "Say nothing but errors on standard error");
  command.add_option("--color", console.color, "Colour messages: auto, always or never")
      ->check(CLI::IsMember(std::vector<std::string>{"auto", "always", "never"}))
      ->type_name("WHEN");
  command.add_option("--log-file", console.log_file, "Write messages to this file too")->type_name("FILE");
}

}  // namespace epweave::cli
