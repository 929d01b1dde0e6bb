// What the command lines of both programs share: the commands every program has, values that
// options take, and errors in words. CLI11 is seen in arguments.cc, command_help.cc and the two
// files with the commands alone: it is slow to compile.
//
//   epweave-replay run G --ranks 0      epweave-replay: error: --ranks: '0' is no whole number from 1 to 65536
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "completion.h"
#include "console.h"
#include "exit_codes.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace epweave::cli {

// The argument that takes the words of a command to run (reduce, bisect). They alone may be empty.
inline constexpr const char* kCommandWords = "CMD";

inline constexpr std::uint64_t kAnySeed = std::numeric_limits<std::uint64_t>::max();

// What the option's value must be; --help and completion say the choices.
CLI::Option* choose(CLI::Option* option, std::initializer_list<const char*> choices);
CLI::Option* choose(CLI::Option* option, const std::vector<std::string>& choices);
CLI::Option* take_whole_number(CLI::Option* option, std::uint64_t least, std::uint64_t most);
enum class Zero : std::uint8_t { kAllowed, kRefused };
CLI::Option* take_number(CLI::Option* option, Zero zero);  // finite, not negative, at most a thousand million

// --from: the form of what a command reads, where neither name nor content says it.
void add_input_form(CLI::App& command, std::string& from);
// --json, --quiet and the like.
void add_console(CLI::App& command, ConsoleOptions& console);
// completion SHELL: sets `shell`.
void add_completion(CLI::App& app, std::string& shell);

// help COMMAND, which parse_arguments answers as COMMAND --help; behind all other commands.
void add_help(CLI::App& app);

// Below all that --help says of a program.
std::string program_footer(Program program);
// The sections of its manual page on exit codes.
std::pair<std::string, std::string> exit_status_section(Program program);

// Parses. What to print instead of running a command, where --help or --version is given. Throws
// UsageError that says what is wrong, and what would be right.
std::optional<std::string> parse_arguments(CLI::App& app, int argc, char** argv);

}  // namespace epweave::cli
