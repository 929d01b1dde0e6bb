// Runs the command that the command line asks for, and turns errors into messages and exit codes.
// Nothing else catches them.
#include <exception>

#include "command_line.h"
#include "common/failure.h"
#include "memory.h"

namespace epweave::cli {
namespace {

Failure describe_failure(const std::string& subject) {
  try {
    throw;
  } catch (const DiffTrouble& e) {
    return {kUsage, "trouble", e.what()};
  } catch (...) {
    return describe(std::current_exception(), subject);
  }
}

int run(int argc, char** argv) {
  std::string subject = "graph";
  Console console({.json = asks_for_json(argc, argv)});
  try {
    const CommandLine command = parse_command_line(argc, argv);
    subject = command.subject;
    console = Console(command.console);
    return command.run(console);
  } catch (...) {
    return fail(describe_failure(subject), console);
  }
}

}  // namespace
}  // namespace epweave::cli

int main(int argc, char** argv) {
  epweave::cli::prepare_memory();
  epweave::cli::open_standard_streams();
  try {
    return epweave::cli::run(argc, argv);
  } catch (const std::exception&) {
    return epweave::cli::kInvalidInput;  // standard output cannot take the error either
  }
}
