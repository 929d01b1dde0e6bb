// epweave-replay: runs the command that the command line asks for, and turns errors into messages and exit
// codes. Nothing else catches them.
#include <fmt/format.h>

#include <cstring>
#include <exception>

#include "replay/executor.h"
#include "replay_commands.h"
#include "report.h"

namespace epweave::cli {
namespace {

struct Failure {
  ExitCode code = kInternal;
  std::string_view kind;
  std::string message;
};

Failure describe(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& e) {
    return {kUsage, "usage", e.what()};
  } catch (const InputError& e) {
    return {kInvalidInput, "invalid-input", e.what()};
  } catch (const PassError& e) {
    return {kDeclined, "declined", e.what()};
  } catch (const replay::CollectiveError& e) {
    return {kDifferent, "collective", e.what()};
  } catch (const replay::RunError& e) {
    return {kDifferent, "run", e.what()};
  } catch (const std::bad_alloc&) {
    return {kInternal, "internal", "out of memory"};
  } catch (const std::exception& e) {
    return {kInternal, "internal", fmt::format("internal error: {}", e.what())};
  }
}

// Before the command line is understood: whether it asks for JSON.
bool asks_for_json(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--json") == 0) return true;
  return false;
}

int run(int argc, char** argv) {
  Console console({.json = asks_for_json(argc, argv)});
  try {
    const ReplayCommandLine command = parse_replay_command_line(argc, argv);
    console = Console(command.console);
    return command.run(console);
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    console.error(failure.message);
    if (console.json())
      console.print(report_text(
          {{"error", {{"kind", failure.kind}, {"exit_code", failure.code}, {"message", failure.message}}}}));
    return failure.code;
  }
}

}  // namespace
}  // namespace epweave::cli

int main(int argc, char** argv) {
  epweave::cli::open_standard_streams();
  try {
    return epweave::cli::run(argc, argv);
  } catch (const std::exception&) {
    return epweave::cli::kInvalidInput;  // standard output cannot take the error either
  }
}
