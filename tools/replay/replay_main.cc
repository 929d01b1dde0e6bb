// epweave-replay: runs the command that the command line asks for, and turns errors into messages
// and exit codes. Nothing else catches them.
#include <exception>

#include "common/failure.h"
#include "replay/kernels/missing_kernels.h"
#include "replay/run/executor.h"
#include "replay_blocking.h"
#include "replay_commands.h"

namespace epweave::cli {
namespace {

constexpr std::string_view kLost = "device-lost";

Failure describe_failure() {
  try {
    throw;
  } catch (const replay::CollectiveError& e) {
    return {kDifferent, "collective", e.what()};
  } catch (const replay::DeviceError& e) {
    const bool is_lost = e.aftermath() == replay::Aftermath::kLost;
    return {kDifferent, is_lost ? kLost : "run", e.what()};
  } catch (const replay::RunError& e) {
    return {kDifferent, "run", e.what()};
  } catch (const replay::MissingKernels& e) {
    Failure failure = describe(std::current_exception(), "");
    failure.details["ops"] = e.ops();
    return failure;
  } catch (...) {
    return describe(std::current_exception(), "");
  }
}

// What a second run says of the kernel that may be the cause.
void look_for_kernel(Failure& failure, Console& console, int argc, char** argv) {
  if (failure.kind != kLost) return;
  const BlockingRun again = run_blocking(argc, argv, console);
  if (!again.text.empty()) failure.message += "\n" + again.text;
  if (!again.report.is_null()) failure.details["launch_blocking"] = again.report;
}

int run(int argc, char** argv) {
  Console console({.program = kReplayProgram, .json = asks_for_json(argc, argv)});
  try {
    const ReplayCommandLine command = parse_replay_command_line(argc, argv);
    console = Console(command.console);
    return command.run(console);
  } catch (...) {
    Failure failure = describe_failure();
    look_for_kernel(failure, console, argc, argv);
    return fail(failure, console);
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
