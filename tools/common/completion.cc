#include "completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "version.h"

namespace epweave::cli {
namespace {

// Inside single quotes of sh.
std::string sh_text(std::string_view text) {
  std::string escaped;
  for (char c : text) escaped += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return escaped;
}

// Inside the brackets of a zsh option specification.
std::string zsh_text(std::string_view text) {
  std::string escaped;
  for (char c : sh_text(text)) {
    if (c == '[' || c == ']' || c == ':') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// Inside single quotes of fish.
std::string fish_text(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '\'' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string roff_text(std::string_view text) {
  std::string escaped = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (char c : text) {
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else
      escaped += c;
  }
  return escaped;
}

std::string roff_lines(std::string_view text) {
  std::string lines;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines += roff_text(text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return lines;
}

// Of the shell function.
std::string function_name(const ProgramHelp& program) {
  std::string name = "_" + program.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

bool names_file(const OptionHelp& option) {
  return option.positional || option.value == "OUT" || option.value == "FILE" || option.value == "DIR";
}

// Prints the modules of "$file" and patterns of them, a line each: those that a shell takes as they
// are. compgen -W runs what else a name holds, $(..) included.
std::string list_modules(const ProgramHelp& program) {
  return fmt::format(
      R"sh({} stats "$file" --json 2>/dev/null |
      sed -n '/"module_patterns": \[$/,/\]/s/^ *"\([[:alnum:]_.*]*\)",\{{0,1\}}$/\1/p')sh",
      program.name);
}

bool takes_modules(const ProgramHelp& program) {
  return std::ranges::any_of(program.commands, [](const CommandHelp& command) {
    return std::ranges::any_of(command.options, &OptionHelp::takes_module);
  });
}

// Functions for values with braces, 'dce,chunk{parts=2,roots=layers.*.moe}', and for modules of the
// first graph on the line.
std::string bash_items(const ProgramHelp& program) {
  std::string cases;
  for (const CommandHelp& command : program.commands)
    for (const OptionHelp& option : command.options)
      for (const auto& [name, words] : option.inside)
        if (!words.empty()) cases += fmt::format("    {}) echo '{}' ;;\n", name, fmt::join(words, " "));
  if (cases.empty()) return "";
  return fmt::format(
      R"sh({1}_modules() {{
  local file
  for file in "${{COMP_WORDS[@]:2}}"; do
    [[ -f $file ]] || continue
    {0}
    return
  done
}}
{1}_inside() {{
  case $1 in
{2}  esac
}}
{1}_item() {{
  local open=${{word##*'}}'}} before item words=$1
  item=${{open##*,}}
  if [[ $open == *'{{'* ]]; then
    before=${{open%%'{{'*}} item=${{open#*'{{'}}
    item=${{item##*,}} words=$({1}_inside "${{before##*,}}")
    [[ $item != roots=* ]] || words=$({1}_modules | sed 's/^/roots=/')
  fi
  mapfile -t COMPREPLY < <(compgen -P "${{word%"$item"}}" -W "$words" -- "$item")
  compopt -o nospace
}}
)sh",
      list_modules(program), function_name(program), cases);
}

std::string bash_completion(const ProgramHelp& program) {
  std::string names, cases;
  for (const CommandHelp& command : program.commands) {
    names += (names.empty() ? "" : " ") + command.name;
    std::string options, values;
    for (const OptionHelp& option : command.options) {
      if (option.positional) {
        options += fmt::format("{}{}", option.choices.empty() ? "" : " ", fmt::join(option.choices, " "));
        continue;
      }
      options += fmt::format(" {}", fmt::join(option.names, " "));
      if (!option.choices.empty())
        values +=
            fmt::format("        {}) mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\"); return ;;\n",
                        fmt::join(option.names, "|"), fmt::join(option.choices, " "));
      if (option.takes_module)
        values += fmt::format(
            "        {}) mapfile -t COMPREPLY < <(compgen -W \"$({}_modules)\" -- \"$word\"); return ;;\n",
            fmt::join(option.names, "|"), function_name(program));
      if (!option.inside.empty())
        values += fmt::format("        {}) {}_item '{}'; return ;;\n", fmt::join(option.names, "|"),
                              function_name(program), fmt::join(option.beginnings, " "));
      else if (!option.beginnings.empty())  // of the item behind the last comma
        values += fmt::format(
            "        {}) mapfile -t COMPREPLY < <(compgen -P \"${{word%\"${{word##*,}}\"}}\" -W '{}' -- "
            "\"${{word##*,}}\"); compopt -o nospace; return ;;\n",
            fmt::join(option.names, "|"), fmt::join(option.beginnings, " "));
    }
    if (!values.empty()) values = "      case $previous in\n" + values + "      esac\n";
    cases += fmt::format("    {})\n{}      options='{}' ;;\n", command.name, values,
                         options.empty() ? "" : options.substr(1));
  }
  return fmt::format(
      R"(# bash completion for {0}; load it with: source <({0} completion bash)
{4}{1}() {{
  local word=${{COMP_WORDS[COMP_CWORD]#[\'\"]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} options=
  local -a files=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{2} --help --version' -- "$word")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{3}  esac
  [[ $word == -* ]] || mapfile -t files < <(compgen -f -- "$word")
  mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  COMPREPLY+=("${{files[@]}}")
}}
complete -o filenames -F {1} {0}
)",
      program.name, function_name(program), names, cases, bash_items(program));
}

// Of the first graph on the line.
std::string zsh_modules(const ProgramHelp& program) {
  if (!takes_modules(program)) return "";
  return fmt::format(R"sh({1}_modules() {{
  local file
  for file in ${{(Q)words[2,-1]}}; do
    [[ -f $file ]] || continue
    compadd "$@" -- ${{(f)"$({0})"}}
    return
  done
}}
)sh",
                     list_modules(program), function_name(program));
}

std::string fish_modules(const ProgramHelp& program) {
  if (!takes_modules(program)) return "";
  return fmt::format(R"sh(function _{1}_modules
  for file in (commandline -opc)[3..-1]
    test -f "$file"; or continue
    {0}
    return
  end
end
)sh",
                     list_modules(program), function_name(program));
}

std::string zsh_completion(const ProgramHelp& program) {
  std::string names, cases;
  for (const CommandHelp& command : program.commands) {
    names += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.summary));
    cases += fmt::format("    {})\n      _arguments", command.name);
    for (const OptionHelp& option : command.options) {
      const std::string action = !option.choices.empty() ? fmt::format("({})", fmt::join(option.choices, " "))
                                 : option.takes_module   ? function_name(program) + "_modules"
                                 : !option.beginnings.empty() ? fmt::format("_sequence compadd - {}",
                                                                            fmt::join(option.beginnings, " "))
                                 : names_file(option)         ? "_files"
                                                              : "";
      if (option.positional) {
        cases += fmt::format(" \\\n        ':{}:{}'", zsh_text(option.names.front()), action);
        continue;
      }
      for (const std::string& name : option.names)
        cases += fmt::format(" \\\n        '{}[{}]{}'", name, zsh_text(option.help),
                             option.value.empty() ? "" : fmt::format(":{}:{}", option.value, action));
    }
    cases += " ;;\n";
  }
  return fmt::format(
      R"(#compdef {0}
# zsh completion for {0}; put it into a folder of $fpath as _{0}
{4}{1}() {{
  local -a commands
  commands=(
{2}  )
  if ((CURRENT == 2)); then
    _describe 'command' commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{3}  esac
}}
{1} "$@"
)",
      program.name, function_name(program), names, cases, zsh_modules(program));
}

std::string fish_completion(const ProgramHelp& program) {
  std::string text = fmt::format(
      "# fish completion for {0}; put it into ~/.config/fish/completions as {0}.fish\n"
      "complete -c {0} -n __fish_use_subcommand -f\n"
      "complete -c {0} -n __fish_use_subcommand -s h -l help -d 'Print help'\n"
      "complete -c {0} -n __fish_use_subcommand -l version -d 'Print versions'\n{1}",
      program.name, fish_modules(program));
  for (const CommandHelp& command : program.commands) {
    text += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d '{}'\n", program.name, command.name,
                        fish_text(command.summary));
    const std::string when = fmt::format("-n '__fish_seen_subcommand_from {}'", command.name);
    for (const OptionHelp& option : command.options) {
      std::string names, value;
      for (const std::string& name : option.names)
        if (!option.positional)
          names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.choices.empty())
        value = fmt::format("{} -a '{}'", option.positional ? " -f" : " -x", fmt::join(option.choices, " "));
      else if (option.takes_module)
        value = fmt::format(" -x -a '(_{}_modules)'", function_name(program));
      else if (!option.beginnings.empty())
        value = fmt::format(" -x -a '{}'", fmt::join(option.beginnings, " "));
      else if (!option.value.empty())
        value = names_file(option) ? " -r -F" : " -x";
      if (names.empty() && value.empty()) continue;  // a file: the default
      text += fmt::format("complete -c {} {}{}{} -d '{}'\n", program.name, when, names, value,
                          fish_text(option.help));
    }
  }
  return text;
}

std::string manual_page(const ProgramHelp& program) {
  std::string upper = program.name;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const std::string name = roff_text(program.name);
  std::string text = fmt::format(
      ".TH {} 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n"
      ".SH SYNOPSIS\n.B {}\n.I command\n[\\fIoptions\\fR]\n.SH DESCRIPTION\n{}",
      roff_text(upper), tool_name(), name, roff_text(program.purpose), name, roff_lines(program.description));
  for (const CommandHelp& command : program.commands) {
    std::string positionals;
    for (const OptionHelp& option : command.options)
      if (option.positional) positionals += " " + option.names.front();
    text += fmt::format(".SH {} {}{}\n{}.\n", name, command.name, positionals, roff_text(command.summary));
    for (const OptionHelp& option : command.options) {
      const std::string value = option.value.empty() ? "" : fmt::format(" \\fI{}\\fR", option.value);
      text +=
          fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff_text(fmt::format("{}", fmt::join(option.names, ", "))),
                      value, roff_text(option.help));
    }
    if (!command.footer.empty()) text += ".PP\n.nf\n" + roff_lines(command.footer) + ".fi\n";
  }
  for (const auto& [title, lines] : program.sections) text += fmt::format(".SH {}\n{}", title, lines);
  return text;
}

}  // namespace

std::string completion(const ProgramHelp& program, std::string_view kind) {
  if (kind == "man") return manual_page(program);
  if (kind == "bash") return bash_completion(program);
  return kind == "zsh" ? zsh_completion(program) : fish_completion(program);
}

}  // namespace epweave::cli
