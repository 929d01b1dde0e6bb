// Errors as the user sees them, the same in every program.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "console.h"
#include "exit_codes.h"
#include "report.h"

namespace epweave::cli {

struct Failure {
  ExitCode code = kInternal;
  std::string_view kind;
  std::string message;  // for people
  Json details = Json::object();
};

// Of the errors that libraries throw (base/error.h); programs look for their own first. `subject`:
// what a pass declined, named before its message; may be empty.
Failure describe(const std::exception_ptr& error, const std::string& subject);

// Says it on standard error, and as JSON where that was asked for. Returns the exit code.
int fail(const Failure& failure, Console& console);

// Before the command line is understood: whether it asks for JSON.
bool asks_for_json(int argc, char** argv);

}  // namespace epweave::cli
