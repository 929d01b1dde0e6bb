#include "completion.h"

#include <fmt/format.h>

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

bool names_file(const OptionHelp& option) {
  return option.positional || option.value == "OUT" || option.value == "FILE" || option.value == "DIR";
}

}  // namespace

std::string bash_completion(const std::vector<CommandHelp>& commands) {
  std::string names, cases;
  for (const CommandHelp& command : commands) {
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
    }
    if (!values.empty()) values = "      case $previous in\n" + values + "      esac\n";
    cases += fmt::format("    {})\n{}      options='{}' ;;\n", command.name, values,
                         options.empty() ? "" : options.substr(1));
  }
  return fmt::format(
      R"(# bash completion for epweave; load it with: source <(epweave completion bash)
_epweave() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} options=
  local -a files=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- "$word")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  [[ $word == -* ]] || mapfile -t files < <(compgen -f -- "$word")
  mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  COMPREPLY+=("${{files[@]}}")
}}
complete -o filenames -F _epweave epweave
)",
      names, cases);
}

std::string zsh_completion(const std::vector<CommandHelp>& commands) {
  std::string names, cases;
  for (const CommandHelp& command : commands) {
    names += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.summary));
    cases += fmt::format("    {})\n      _arguments", command.name);
    for (const OptionHelp& option : command.options) {
      const std::string action = !option.choices.empty() ? fmt::format("({})", fmt::join(option.choices, " "))
                                 : names_file(option)    ? "_files"
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
      R"(#compdef epweave
# zsh completion for epweave; put it into a folder of $fpath as _epweave
_epweave() {{
  local -a commands
  commands=(
{}  )
  if ((CURRENT == 2)); then
    _describe 'command' commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{}  esac
}}
_epweave "$@"
)",
      names, cases);
}

std::string fish_completion(const std::vector<CommandHelp>& commands) {
  std::string text =
      "# fish completion for epweave; put it into ~/.config/fish/completions as epweave.fish\n"
      "complete -c epweave -n __fish_use_subcommand -f\n"
      "complete -c epweave -n __fish_use_subcommand -s h -l help -d 'Print help'\n"
      "complete -c epweave -n __fish_use_subcommand -l version -d 'Print versions'\n";
  for (const CommandHelp& command : commands) {
    text += fmt::format("complete -c epweave -n __fish_use_subcommand -a {} -d '{}'\n", command.name,
                        fish_text(command.summary));
    const std::string when = fmt::format("-n '__fish_seen_subcommand_from {}'", command.name);
    for (const OptionHelp& option : command.options) {
      std::string names, value;
      for (const std::string& name : option.names)
        if (!option.positional)
          names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!option.choices.empty())
        value = fmt::format("{} -a '{}'", option.positional ? " -f" : " -x", fmt::join(option.choices, " "));
      else if (!option.value.empty())
        value = names_file(option) ? " -r -F" : " -x";
      if (names.empty() && value.empty()) continue;  // a file: the default
      text += fmt::format("complete -c epweave {}{}{} -d '{}'\n", when, names, value, fish_text(option.help));
    }
  }
  return text;
}

std::string manual_page(const std::vector<CommandHelp>& commands) {
  std::string text = fmt::format(
      ".TH EPWEAVE 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\nepweave \\- rewrite PyTorch MoE training "
      "graphs\n"
      ".SH SYNOPSIS\n.B epweave\n.I command\n[\\fIoptions\\fR]\n"
      ".SH DESCRIPTION\nReads a serialized training graph, rewrites it so that expert\\-parallel "
      "communication\n"
      "hides behind compute, and writes it back. Every node of the result says where it came from.\n",
      tool_name());
  for (const CommandHelp& command : commands) {
    std::string positionals;
    for (const OptionHelp& option : command.options)
      if (option.positional) positionals += " " + option.names.front();
    text += fmt::format(".SH epweave {}{}\n{}.\n", command.name, positionals, roff_text(command.summary));
    for (const OptionHelp& option : command.options) {
      const std::string value = option.value.empty() ? "" : fmt::format(" \\fI{}\\fR", option.value);
      text +=
          fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff_text(fmt::format("{}", fmt::join(option.names, ", "))),
                      value, roff_text(option.help));
    }
    if (!command.footer.empty()) text += ".PP\n.nf\n" + roff_lines(command.footer) + ".fi\n";
  }
  return text +
         ".SH EXIT STATUS\n0 fine, 1 different or verification failed, 2 wrong command line, 3 unreadable or "
         "invalid "
         "file,\n4 a pass declined the graph, 5 a bug of epweave; the same with and without \\-\\-json. "
         "reduce: 130 "
         "interrupted.\n"
         ".SH FILES\n.TP\n\\fI*.epw\\fR\nA graph in binary form; \\fI.txt\\fR is text, \\fI.json\\fR JSON, "
         "\\fI.onnx\\fR ONNX, "
         "\\fI.gz\\fR behind any of them compressed.\n"
         ".TP\n\\fI*.reproducer.epw\\fR\nWhat a failing pass was given, with the rest of the pipeline; "
         "rewrite "
         "\\-\\-reproducer runs it.\n"
         ".SH ENVIRONMENT\n.TP\nNO_COLOR\nNo colour in messages, where it is set and not empty.\n"
         ".TP\nTMPDIR\nWhere reduce keeps the graph that it tries.\n"
         ".SH SEE ALSO\nepweave\\-replay \\-\\-help, which executes graphs.\n";
}

}  // namespace epweave::cli
