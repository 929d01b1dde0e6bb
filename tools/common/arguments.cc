#include "arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/parse_number.h"
#include "wrap_help.h"

namespace epweave::cli {
namespace {

std::string did_you_mean(std::string_view given, const std::vector<std::string>& known) {
  const std::string_view near = nearest_name(given, {known.begin(), known.end()});
  return near.empty() ? "" : fmt::format("; did you mean '{}'?", near);
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// `help` and `help COMMAND` are `--help` and `COMMAND --help`.
std::vector<std::string> without_help_command(const std::vector<std::string>& words) {
  if (words.empty() || words[0] != "help") return words;
  if (words.size() == 1) return {"--help"};
  const auto is_option = [](const std::string& word) { return word.starts_with('-'); };
  if (is_option(words[1])) return words;
  if (const auto extra = std::find_if_not(words.begin() + 2, words.end(), is_option); extra != words.end())
    throw UsageError(fmt::format("help takes one command, and '{}' is one more", *extra));
  std::vector<std::string> asked = {words[1], "--help"};
  asked.insert(asked.end(), words.begin() + 2, words.end());
  return asked;
}

void require_known_command(const CLI::App& app, const std::vector<std::string>& words) {
  const std::vector<std::string> names = command_names(app);
  const std::string given = words.empty() ? "" : words[0];
  if (given.empty())
    throw UsageError(fmt::format("give a command: {}; --help says more", fmt::join(names, ", ")));
  if (given.starts_with("-") || std::ranges::find(names, given) != names.end()) return;
  std::vector<std::string> guesses = names;
  guesses.insert(guesses.end(), {"--help", "--version"});
  const std::string guess = did_you_mean(given, guesses);
  throw UsageError(fmt::format("unknown command '{}'{} The commands are {}.", given,
                               guess.empty() ? "." : guess, fmt::join(names, ", ")));
}

// "epweave print".
std::string full_name(const CLI::App& app, const CLI::App& command) {
  return &app == &command ? app.get_name() : fmt::format("{} {}", app.get_name(), command.get_name());
}

// The command that was given, else the program.
const CLI::App& given_command(const CLI::App& app) {
  const auto given = app.get_subcommands();
  return given.empty() ? app : *given.front();
}

// bash makes two words of -p chunk{roots=a,parts=2}: chunkroots=a and chunkparts=2.
bool has_expanded_braces(const CLI::App& command) {
  for (const char* name : {"--pipeline", "--preset"}) {
    const CLI::Option* const option = command.get_option_no_throw(name);
    if (option == nullptr || option->count() == 0) continue;
    const std::string text = option->results().front();
    if (text.find('=') != std::string::npos && text.find('{') == std::string::npos) return true;
  }
  return false;
}

bool lacks_pipeline(const CLI::App& command) {
  const CLI::Option* const pipeline = command.get_option_no_throw("--pipeline");
  const CLI::Option* const preset = command.get_option_no_throw("--preset");
  return pipeline != nullptr && pipeline->count() == 0 && (preset == nullptr || preset->count() == 0);
}

[[noreturn]] void refuse_extra(const CLI::App& app) {
  const CLI::App& command = given_command(app);
  // What stands before the command is left over by the program, what stands behind it by the
  // command.
  if (&app != &command && !app.remaining().empty()) {
    const std::string option = app.remaining().front();
    if (command.get_option_no_throw(option.substr(0, option.find('='))) != nullptr)
      throw UsageError(fmt::format("{} is an option of the command and stands behind it: {} {}", option,
                                   full_name(app, command), option));
    throw UsageError(fmt::format("{} does not take '{}'", app.get_name(), option));
  }
  const std::string extra = command.remaining().empty() ? "" : command.remaining().front();
  if (has_expanded_braces(command))
    throw UsageError(
        fmt::format("{} does not take '{}': the shell expanded the braces of the pipeline; write it in "
                    "quotes: 'chunk{{parts=4}}'",
                    full_name(app, command), extra));
  if ((extra == "-o" || extra == "--output") && command.get_option_no_throw("OUT") != nullptr)
    throw UsageError(
        fmt::format("{0} does not take '{1}': the file to write is its second argument: {0} IN OUT",
                    full_name(app, command), extra));
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  std::string advice = did_you_mean(extra.substr(0, extra.find('=')), names);
  if (advice.empty() && &app == &command)
    advice = ": options stand behind a command; --help lists the commands";
  if (advice.empty() && !extra.starts_with('-') && lacks_pipeline(command))
    advice = ": a pipeline stands behind -p, a preset behind --preset";
  const bool is_output = !extra.starts_with('-') && command.get_option_no_throw("--output") != nullptr;
  if (advice.empty() && is_output) advice = fmt::format(": the file to write stands behind -o: -o {}", extra);
  throw UsageError(fmt::format("{} does not take '{}'{}", full_name(app, command), extra, advice));
}

// What the command asks for in this place: "epweave print needs G: graph to print, ..".
[[noreturn]] void refuse_without(const CLI::App& app, const CLI::Option& option) {
  std::string what = option.get_description();
  if (!what.empty()) what[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(what[0])));
  throw UsageError(
      fmt::format("{} needs {}: {}", full_name(app, given_command(app)), option.get_name(), what));
}

[[noreturn]] void refuse_missing(const CLI::App& app, const CLI::ParseError& error) {
  for (const CLI::Option* option : given_command(app).get_options())
    if (option->get_required() && option->count() == 0) refuse_without(app, *option);
  throw UsageError(error.what());
}

[[noreturn]] void refuse_no_value(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  throw UsageError(fmt::format("{} needs a value: {}", option.get_name(), type.substr(type.find(':') + 1)));
}

// CLI11 says which option in front of a colon.
[[noreturn]] void refuse_count(const CLI::App& app, std::string_view message) {
  const std::string name(message.substr(0, message.find(':')));
  const CLI::Option* const option = given_command(app).get_option_no_throw(name);
  if (option == nullptr) throw UsageError(std::string(message));
  if (!message.ends_with("missing")) throw UsageError(fmt::format("{} is given more than once", name));
  refuse_no_value(*option);
}

// Nothing has an empty name. Where a script's variable is not set, `--baseline "$OLD"` would pass
// for no baseline.
void refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* option : given_command(app).get_options()) {
    const bool is_flag = option->get_items_expected_max() == 0;
    if (is_flag || option->count() == 0 || option->get_name() == kCommandWords) continue;
    if (std::ranges::none_of(option->results(), &std::string::empty)) continue;
    if (!option->nonpositional()) refuse_without(app, *option);
    refuse_no_value(*option);
  }
}

// CLI11 leaves an empty line for a group of options that are hidden.
std::string help_text(const CLI::App& app, const CLI::App& command) {
  std::string text = (&command == &app ? app.help() : command.help(app.get_name())) + "\n";
  if (const std::size_t at = text.find("\n\n\n"); at != text.npos) text.erase(at, 1);
  return text;
}

}  // namespace

// --------------------------------------------------------------------------- values

// Validators say "" or what is wrong; CLI11 puts "--ranks: " before it.
CLI::Option* choose(CLI::Option* option, const std::vector<std::string>& names) {
  const auto check = [names](const std::string& text) -> std::string {
    if (std::ranges::find(names, text) != names.end()) return "";
    return fmt::format("'{}' is none of {}", text, fmt::join(names, ", "));
  };
  return option->check(CLI::Validator(check, fmt::format("{{{}}}", fmt::join(names, ","))));
}

CLI::Option* choose(CLI::Option* option, std::initializer_list<const char*> choices) {
  return choose(option, std::vector<std::string>(choices.begin(), choices.end()));
}

CLI::Option* take_whole_number(CLI::Option* option, std::uint64_t least, std::uint64_t most) {
  return option->check([=](const std::string& text) -> std::string {
    const auto number = parse_number<std::uint64_t>(text);
    if (number && *number >= least && *number <= most) return "";
    return fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
  });
}

CLI::Option* take_number(CLI::Option* option, Zero zero) {
  return option->check([=](const std::string& text) -> std::string {
    const auto number = parse_number<double>(text);
    const bool is_fine = number && std::isfinite(*number) && *number <= 1e9 &&
                         (*number > 0 || (*number == 0 && zero == Zero::kAllowed));
    if (is_fine) return "";
    return fmt::format("'{}' is not a number {}, up to 1000000000", text,
                       zero == Zero::kAllowed ? "from 0" : "above 0");
  });
}

// --------------------------------------------------------------------------- options of both
// programs

void add_input_form(CLI::App& command, std::string& from) {
  // Names of format_names() (io/file.h).
  choose(command
             .add_option("--from", from,
                         "Form of the input: binary, text, json, onnx or pt2 (default: by extension, "
                         "else by content)")
             ->type_name("FORM"),
         {"binary", "text", "json", "onnx", "onnx-ir10", "pt2"});
}

void add_console(CLI::App& command, ConsoleOptions& console) {
  command.add_flag("--json", console.json,
                   "Give the result, or the error, as one JSON document on standard output");
  command.add_flag("-v,--verbose", console.verbose, "Say more on standard error");
  command.add_flag("-q,--quiet", console.quiet, "Say nothing but errors on standard error");
  choose(command.add_option("--color", console.color, "Colour messages: auto, always or never")
             ->type_name("WHEN"),
         {"auto", "always", "never"});
  command.add_option("--log-file", console.log_file, "Write messages to this file too")->type_name("FILE");
}

void add_completion(CLI::App& app, std::string& shell) {
  CLI::App& command =
      *app.add_subcommand("completion", "Print a completion script for a shell, or the manual page");
  choose(command.add_option("SHELL", shell, "bash, zsh, fish or man")->required()->type_name(""),
         {"bash", "zsh", "fish", "man"});
  command.footer(fmt::format("Example:\n  source <({} completion bash)", app.get_name()));
}

void add_help(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("help", "Say what the program or one of its commands does and takes");
  const std::vector<std::string> names = command_names(app);
  CLI::Option* const option = command.add_option_function<std::string>(
      "COMMAND", [](const std::string&) {}, "A command: what its --help says");
  choose(option, names)->type_name("");
  command.footer(fmt::format("Example:\n  {} help {}", app.get_name(), names.front()));
}

std::string program_footer(Program program) {
  return "Exit codes, the same with and without --json:\n" + exit_codes_text(program) +
         "Results go to standard output, messages to standard error; `-` stands for standard input" +
         (program == Program::kEpweave ? " or output." : ".");
}

std::pair<std::string, std::string> exit_status_section(Program program) {
  return {"EXIT STATUS", ".nf\n" + exit_codes_text(program) + ".fi\nThe same with and without \\-\\-json.\n"};
}

// --------------------------------------------------------------------------- parsing

std::optional<std::string> parse_arguments(CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words = without_help_command({argv + 1, argv + argc});
  require_known_command(app, words);
  std::ranges::reverse(words);  // CLI11 takes the last first
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    const CLI::App& command = given_command(app);  // the one that --help was given to
    return wrap_help(help_text(app, command), output_columns());
  } catch (const CLI::CallForVersion& version) {
    return std::string(version.what()) + "\n";
  } catch (const CLI::ExtrasError&) {
    refuse_extra(app);
  } catch (const CLI::RequiredError& error) {
    refuse_missing(app, error);
  } catch (const CLI::ArgumentMismatch& error) {
    refuse_count(app, error.what());
  } catch (const CLI::ConversionError& error) {  // of flags: the values of options are checked before
    const std::string message = error.what();    // "Could not convert: --json = 3"
    const std::string name = message.substr(std::min(message.find("--"), message.size()));
    throw UsageError(fmt::format("{} takes no value", name.substr(0, name.find(' '))));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  if (app.get_subcommands().empty()) throw UsageError("give a command; --help lists them");
  refuse_empty_values(app);
  return std::nullopt;
}

}  // namespace epweave::cli
