// Runs the command that the command line asks for, and turns errors into messages and exit codes. Nothing
// else catches them.
#include <fmt/format.h>

#include <cstring>
#include <exception>

#include "command_line.h"
#include "report.h"

namespace epweave::cli {
namespace {

// An error as the user sees it.
struct Failure {
  ExitCode code = kInternal;
  std::string_view kind;
  std::string message;  // for people
  Json details = Json::object();
};

Failure describe(const std::exception_ptr& error, const std::string& subject) {
  try {
    std::rethrow_exception(error);
  } catch (const DiffTrouble& e) {
    return {kUsage, "trouble", e.what()};
  } catch (const UsageError& e) {
    return {kUsage, "usage", e.what()};
  } catch (const InputError& e) {
    return {kInvalidInput, "invalid-input", e.what()};
  } catch (const PassError& e) {
    Json details = {{"id", e.id()}, {"problem", e.problem()}};
    add_site(details, e.site());
    details["remedy"] = text_or_null(e.remedy());
    return {kDeclined, "declined", fmt::format("{}: {}", subject, e.what()), std::move(details)};
  } catch (const std::bad_alloc&) {
    return {kInternal, "internal", "out of memory"};
  } catch (const std::exception& e) {
    return {kInternal, "internal", fmt::format("internal error: {}", e.what())};
  }
}

int fail(const Failure& failure, Console& console) {
  console.error(failure.message);
  if (console.json()) {
    Json error = {{"kind", failure.kind}, {"exit_code", failure.code}, {"message", failure.message}};
    error.update(failure.details);
    console.print(report_text({{"error", std::move(error)}}));
  }
  return failure.code;
}

// Before the command line is understood: whether it asks for JSON.
bool asks_for_json(int argc, char** argv) {
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i)
    if (std::strcmp(argv[i], "--json") == 0) return true;
  return false;
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
    return fail(describe(std::current_exception(), subject), console);
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
