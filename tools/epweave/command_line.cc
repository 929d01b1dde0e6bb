#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "command_options.h"
#include "common/arguments.h"
#include "common/command_files.h"
#include "common/completion.h"
#include "common/version.h"
#include "cost/cluster.h"
#include "pipeline/registry.h"

namespace epweave::cli {
namespace {

constexpr const char* kAbout =
    "Rewrites PyTorch MoE training graphs so that expert-parallel communication hides behind compute.";

// Examples, for --help and the manual page.
void add_examples(CLI::App& app) {
  static const std::pair<const char*, const char*> kExamples[] = {
      {"rewrite",
       "Examples:\n"
       "  epweave rewrite IN.epw --preset ep-overlap -o OUT.epw\n"
       "  epweave rewrite IN.epw -p 'canonicalize,chunk{roots=layers.*.moe,parts=4}' -o OUT.epw\n"
       "  epweave rewrite --reproducer OUT.epw.reproducer.epw"},
      {"print",
       "Examples:\n"
       "  epweave print G.epw --module layers.3.moe --part 1\n"
       "  epweave print G.epw --grep all_to_all --json"},
      {"stats",
       "Examples:\n  epweave stats G.epw --json\n  epweave stats IN.epw OUT.epw     a column for each"},
      {"overlap",
       "Examples:\n"
       "  epweave overlap OUT.epw --before CHUNKED.epw\n"
       "  epweave overlap OUT.epw --trace trace.json     for ui.perfetto.dev"},
      {"report",
       "Exit codes: 0 B is proved, 1 it is not.\n"
       "Examples:\n"
       "  epweave report IN.epw OUT.epw -o report.html -o report.md\n"
       "  epweave report IN.epw OUT.epw --cluster h100-2x4 --json"},
      {"simulate",
       "Examples:\n"
       "  epweave simulate G.epw --cluster h100-2x4 --json\n"
       "  epweave simulate G.epw --cluster h100+nic=4e11+host_us=10 --trace trace.json\n"
       "  epweave simulate G.epw --costs costs.json --measured timeline.json\n"
       "  epweave simulate NEW.epw --baseline OLD.json"},
      {"verify",
       "Examples:\n"
       "  epweave verify G.epw\n"
       "  epweave verify IN.epw OUT.epw                 does OUT compute what IN computes?\n"
       "  epweave verify --ranks RANK0.epw RANK1.epw    do the ranks' collectives match, without deadlock?"},
      {"doctor",
       "Exit codes: 0 nothing is missing, 1 something is.\nExample:\n  epweave doctor G.epw --json"},
      {"explain", "Example:\n  epweave explain OUT.epw all_to_all_single_1_chunk0"},
      {"convert",
       "Examples:\n"
       "  epweave convert G.epw G.txt\n"
       "  epweave convert G.epw - --to json | jq .\n"
       "  epweave convert G.epw --to chakra -o traces     execution traces for ASTRA-sim"},
      {"partition",
       "Example:\n  epweave partition G.epw --fwd F.epw --bwd B.epw --budget 0.5 --report R.json"},
      {"passes", "Examples:\n  epweave passes chunk\n  epweave passes --json"},
  };
  for (const auto& [name, text] : kExamples) app.get_subcommand(name)->footer(text);
}

struct CommandRow {
  const char *name, *summary;
  void (*add_options)(CLI::App& command, Choices& choices);
};

constexpr CommandRow kCommands[] = {
    {"rewrite", "Run a pipeline of passes over a graph", add_rewrite_options},
    {"partition", "Split a joint graph into forward and backward", add_partition_options},
    {"print", "Print a graph as text, one node per line", add_print_options},
    {"stats", "Count what is in a graph and what it needs: flops, bytes, collectives, memory",
     add_stats_options},
    {"verify",
     "Check the invariants of a graph, that a second graph is a legal rewrite of it, or that ranks agree",
     add_verify_options},
    {"diff", "Show what differs between two graphs, node by node", add_diff_options},
    {"doctor", "Say what a graph has and lacks for each pass, what that costs, and what adds it",
     add_doctor_options},
    {"explain", "Say what a node is and where it comes from", add_explain_options},
    {"overlap", "Say what runs under each token exchange", add_overlap_options},
    {"simulate",
     "Predict how long a step takes in its order, what is exposed, and how far from optimal that is",
     add_simulate_options},
    {"report", "Say on one page what a rewrite did: proof, predicted time, exchanges, plan, difference",
     add_report_options},
    {"reduce", "Shrink a graph while a command exits 0 on it", add_reduce_options},
    {"bisect", "Find the first pass after which a command fails", add_bisect_options},
    {"extract", "Make a graph of its own of some modules' nodes", add_extract_options},
    {"resize", "Make the same program at other sizes: fewer tokens, fewer layers", add_resize_options},
    {"specialize", "Turn a graph that holds for every rank into the graphs of ranks", add_specialize_options},
    {"generalize", "Make one graph for all ranks of the graphs of some ranks of a job",
     add_generalize_options},
    {"artifact", "Write a graph with a fingerprint of what it was made for, or check one before it is run",
     add_artifact_options},
    {"convert", "Write a graph in another form", add_convert_options},
    {"passes", "List the passes and presets with their options", add_passes_options},
};

void add_options(const CommandRow& row, CLI::App& command, Choices& choices) {
  row.add_options(command, choices);
  add_console(command, choices.console);
}

// The commands. What they say goes to `choices`. Options are made for the command that is given
// alone: those of all take a fifth of the program's start.
std::unique_ptr<CLI::App> make_app(Choices& choices) {
  auto app = std::make_unique<CLI::App>(kAbout, "epweave");
  app->set_version_flag("--version", version_text(app->get_name()),
                        "Print the versions of the tool and its libraries");
  app->option_defaults()->always_capture_default(false);
  for (const CommandRow& row : kCommands) {
    CLI::App* const command = app->add_subcommand(row.name, row.summary);
    command->preparse_callback(
        [&row, command, &choices](std::size_t) { add_options(row, *command, choices); });
  }
  add_completion(*app, choices.completion);
  add_help(*app);
  add_examples(*app);
  app->footer(program_footer(Program::kEpweave));  // at the end: commands made behind it would have it, too
  return app;
}

// What each pass or preset takes in braces, as completion offers it.
template <class Rows>
std::vector<std::pair<std::string, std::vector<std::string>>> options_inside(const Rows& rows) {
  std::vector<std::pair<std::string, std::vector<std::string>>> inside;
  for (const auto& row : rows) {
    std::vector<std::string>& words = inside.emplace_back(row.name, std::vector<std::string>()).second;
    for (const OptionSpec& option : row.options) {
      if (option.kind == OptionKind::kFlag) words.emplace_back(option.name);
      if (option.choices.empty() && option.kind != OptionKind::kFlag)
        words.push_back(fmt::format("{}=", option.name));
      for (const std::string_view choice : option.choices)
        words.push_back(fmt::format("{}={}", option.name, choice));
    }
  }
  return inside;
}

// The commands, with what the values of some options begin with.
std::vector<CommandHelp> commands_of(const CLI::App& app) {
  std::vector<std::string> passes, presets;
  for (const PassInfo& pass : registry().passes) passes.emplace_back(pass.name);
  for (const PresetInfo& preset : registry().presets) presets.emplace_back(preset.name);
  std::vector<std::string> after = passes;
  after.emplace_back("all");
  std::vector<std::string> passes_and_presets = passes;
  passes_and_presets.insert(passes_and_presets.end(), presets.begin(), presets.end());
  const std::vector<std::string> clusters(cluster_names().begin(), cluster_names().end());
  std::vector<CommandHelp> commands = list_commands(app);
  for (CommandHelp& command : commands)
    for (OptionHelp& option : command.options) {
      const std::string& name = option.names.back();
      if (name == "--pipeline") option.beginnings = passes, option.inside = options_inside(registry().passes);
      if (name == "--preset") option.beginnings = presets, option.inside = options_inside(registry().presets);
      if (name == "--module") option.takes_module = true;
      if (name == "--print-after") option.beginnings = after;
      if (name == "--cluster") option.beginnings = clusters;
      if (command.name == "passes" && option.positional) option.choices = passes_and_presets;
    }
  return commands;
}

// Of an app whose commands have no options yet.
ProgramHelp program_help(CLI::App& app, Choices& choices) {
  for (const CommandRow& row : kCommands) add_options(row, *app.get_subcommand(row.name), choices);
  return {
      "epweave",
      "rewrite PyTorch MoE training graphs",
      "Reads a serialized training graph, rewrites it so that expert-parallel communication\n"
      "hides behind compute, and writes it back. Every node of the result says where it came from.",
      {exit_status_section(Program::kEpweave),
       {"FILES",
        ".TP\n\\fI*.epw\\fR\nA graph in binary form; \\fI.txt\\fR is text, \\fI.json\\fR JSON, \\fI.onnx\\fR "
        "ONNX, "
        "\\fI.gz\\fR behind any of them compressed.\n"
        ".TP\n\\fI*.reproducer.epw\\fR\nWhat a failing pass was given, with the rest of the pipeline; "
        "rewrite \\-\\-reproducer runs it.\n"},
       {"ENVIRONMENT",
        ".TP\nNO_COLOR\nNo colour in messages, where it is set and not empty.\n"
        ".TP\nTMPDIR\nWhere reduce keeps the graph that it tries.\n"},
       {"SEE ALSO", ".BR epweave\\-replay (1),\nwhich executes graphs.\n"}},
      commands_of(app)};
}

// The file that convert writes may be given as its second argument or with -o.
void join_convert_outputs(ConvertOptions& options) {
  if (options.output.to == kChakra || options.folder.empty()) return;
  if (!options.output.path.empty()) throw UsageError("epweave convert writes one file: give OUT or -o OUT");
  options.output.path = std::exchange(options.folder, "");
}

CommandFiles files_of(const Choices& choices) {
  const std::string& result =
      choices.convert.output.path.empty() ? choices.output.path : choices.convert.output.path;
  CommandFiles files{.inputs = choices.more,
                     .result = choices.specialize.all ? "" : result,  // a folder
                     .beside = {{"--fwd", choices.partition.forward},
                                {"--bwd", choices.partition.backward},
                                {"--report", choices.partition.report + choices.rewrite.report},
                                {"--keep-reproducer", choices.rewrite.keep.value_or("")},
                                {"--trace", choices.overlap.trace + choices.simulate.trace},
                                {"--html", choices.diff.html},
                                {"--log-file", choices.console.log_file}}};
  for (const std::string& path :
       {choices.input.path, choices.rewrite.reproducer.value_or(""), choices.overlap.before.path,
        choices.diff.b.path, choices.report.b.path, choices.report.costs, choices.simulate.pricing.costs,
        choices.convert.pricing.costs, choices.simulate.measured, choices.simulate.baseline,
        choices.artifact.against.path, choices.forward.path, choices.backward.path})
    files.inputs.push_back(path);
  for (const std::string& path : choices.report.outputs) files.beside.push_back({"--output", path});
  return files;
}

std::vector<InputOptions> all_inputs(const Choices& choices) {
  std::vector<InputOptions> inputs = {choices.input};
  for (const std::string& path : choices.more) inputs.push_back({.path = path, .from = choices.input.from});
  return inputs;
}

std::function<int(Console&)> bind_verify(const Choices& choices) {
  if (!choices.forward.path.empty() || !choices.backward.path.empty()) {
    if (choices.forward.path.empty() || choices.backward.path.empty())
      throw UsageError("give both halves: --fwd F and --bwd B");
    if (!choices.more.empty() || choices.ranks || choices.assume_none)
      throw UsageError("verify G --fwd F --bwd B takes one graph, and neither --ranks nor --assume-none");
    return [halves = VerifyHalvesOptions{choices.input, choices.forward, choices.backward, choices.tangents}](
               Console& console) { return verify_halves(halves, console); };
  }
  if (!choices.tangents.empty()) throw UsageError("--tangents is for verify G --fwd F --bwd B");
  const std::vector<InputOptions> inputs = all_inputs(choices);
  if (choices.assume_none && (choices.ranks || inputs.size() != 2))
    throw UsageError("--assume-none is for verify A B, of which it refuses what the proof takes for granted");
  if (choices.explain_literals && !choices.ranks)
    throw UsageError("--explain-literals is for verify --ranks");
  if (choices.ranks)
    return [inputs, explain = choices.explain_literals](Console& console) {
      return verify_ranks({inputs, explain}, console);
    };
  if (inputs.size() > 2)
    throw UsageError("verify takes one graph, or two to compare; --ranks takes one for each rank");
  if (inputs.size() == 1) return [inputs](Console& console) { return verify(inputs[0], console); };
  return [inputs, assume_none = choices.assume_none](Console& console) {
    return verify_rewrite({inputs[0], inputs[1], assume_none}, console);
  };
}

std::function<int(Console&)> bind_convert(const Choices& choices) {
  ConvertOptions options = choices.convert;
  options.input = choices.input;
  const bool to_chakra = options.output.to == kChakra, has_out = !options.output.path.empty();
  if (to_chakra && (options.folder.empty() || has_out))
    throw UsageError("convert --to chakra writes a folder: give it with -o DIR, and no OUT");
  const bool is_priced = options.cluster != ConvertOptions().cluster || !options.pricing.costs.empty() ||
                         options.pricing.unpriced == "free";
  if (!to_chakra && is_priced)
    throw UsageError("convert takes --cluster, --costs and --unpriced with --to chakra only");
  if (!to_chakra && !has_out)
    throw UsageError("epweave convert needs OUT: file to write, - for standard output");
  if (to_chakra) return [options](Console& console) { return convert_to_chakra(options, console); };
  return [options](Console& console) { return convert(options, console); };
}

std::function<int(Console&)> bind_command(const std::shared_ptr<CLI::App>& app,
                                          const std::shared_ptr<Choices>& choices) {
  const std::string name = app->get_subcommands().front()->get_name();
  choices->rewrite.input = choices->print.input = choices->input;
  choices->rewrite.output = choices->output;
  if (name == "rewrite") return [choices](Console& console) { return rewrite(choices->rewrite, console); };
  choices->partition.input = choices->input;
  if (name == "partition")
    return [choices](Console& console) { return partition(choices->partition, console); };
  if (name == "print") return [choices](Console& console) { return print(choices->print, console); };
  choices->diff.a = choices->overlap.input = choices->simulate.input = choices->input;
  choices->diff.b.from = choices->overlap.before.from = choices->input.from;
  if (name == "doctor") return [choices](Console& console) { return doctor(choices->input, console); };
  if (name == "explain")
    return [choices](Console& console) { return explain({choices->input, choices->node}, console); };
  if (name == "overlap")
    return [choices](Console& console) {
      choices->overlap.more = all_inputs(*choices);
      choices->overlap.more.erase(choices->overlap.more.begin());
      return overlap(choices->overlap, console);
    };
  if (name == "report") {
    choices->report.a = choices->input;
    choices->report.b.from = choices->input.from;
    return [choices](Console& console) { return report(choices->report, console); };
  }
  if (name == "simulate") return [choices](Console& console) { return simulate(choices->simulate, console); };
  if (name == "diff") return [choices](Console& console) { return diff(choices->diff, console); };
  if (name == "stats") return [choices](Console& console) { return stats(all_inputs(*choices), console); };
  if (name == "verify") return bind_verify(*choices);
  if (name == "reduce")
    return [choices](Console& console) {
      choices->reduce.input = choices->input;
      choices->reduce.output = choices->output;
      return reduce(choices->reduce, console);
    };
  if (name == "bisect")
    return [choices](Console& console) {
      choices->bisect.input = choices->input;
      return bisect(choices->bisect, console);
    };
  if (name == "extract")
    return [choices](Console& console) {
      choices->extract.input = choices->input;
      choices->extract.output = choices->output;
      return extract(choices->extract, console);
    };
  if (name == "resize")
    return [choices](Console& console) {
      choices->resize.input = choices->input;
      choices->resize.output = choices->output;
      return resize(choices->resize, console);
    };
  if (name == "specialize")
    return [choices](Console& console) {
      choices->specialize.input = choices->input;
      choices->specialize.output = choices->output;
      return specialize(choices->specialize, console);
    };
  if (name == "generalize")
    return [choices](Console& console) {
      return generalize({all_inputs(*choices), choices->output, choices->repair}, console);
    };
  if (name == "artifact")
    return [choices](Console& console) {
      choices->artifact.input = choices->input;
      choices->artifact.against.from = choices->input.from;
      choices->artifact.output = choices->output;
      return artifact(choices->artifact, console);
    };
  if (name == "convert") return bind_convert(*choices);
  if (name == "passes") return [choices](Console& console) { return list_passes(choices->listed, console); };
  return [app, choices](Console& console) {
    return console.print(completion(program_help(*app, *choices), choices->completion)), kFine;
  };
}

// A place that cannot be written is said before the work.
int run_command(const CommandFiles& files, const std::function<int(Console&)>& command, bool is_diff,
                Console& console) {
  try {
    require_all_writable(files);
    return command(console);
  } catch (const std::exception& error) {
    if (is_diff) throw DiffTrouble(error.what());
    throw;
  }
}

}  // namespace

CommandLine parse_command_line(int argc, char** argv) {
  const auto choices = std::make_shared<Choices>();
  const std::shared_ptr<CLI::App> app = make_app(*choices);
  if (const std::optional<std::string> text = parse_arguments(*app, argc, argv))
    return {.run = [text](Console& console) { return console.print(*text), kFine; }};
  join_convert_outputs(choices->convert);
  const CommandFiles files = files_of(*choices);
  check_files(files);
  const std::string subject =
      choices->input.path.empty() ? choices->rewrite.reproducer.value_or("") : choices->input.path;
  return {.console = choices->console,
          .subject = subject == "-" ? "standard input" : subject,
          .run = [files, is_diff = app->got_subcommand("diff"), command = bind_command(app, choices)](
                     Console& console) { return run_command(files, command, is_diff, console); }};
}

}  // namespace epweave::cli
