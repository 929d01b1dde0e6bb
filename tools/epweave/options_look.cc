// Options of the commands that look at graphs.
#include "command_options.h"
#include "common/arguments.h"

namespace epweave::cli {
namespace {

constexpr std::uint64_t kMostParts = 1000000;

}  // namespace

void add_print_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph to print, - for standard input");
  command.add_flag("--full", choices.print.full, "Print the lossless text form instead of the short one");
  command
      .add_option("--grep", choices.print.grep,
                  "Only nodes whose short line matches this extended regular expression")
      ->type_name("REGEX");
  command
      .add_option("--module", choices.print.module,
                  "Only nodes of this module; * stands for one path element")
      ->type_name("PATTERN");
  take_whole_number(command
                        .add_option("--part", choices.print.part,
                                    "Only nodes of this part, from 0, of the modules that were divided")
                        ->type_name("K"),
                    0, kMostParts);
}

void add_diff_options(CLI::App& command, Choices& choices) {
  DiffCommand& options = choices.diff;
  command.add_option("A", choices.input.path, "Graph before, - for standard input")
      ->required()
      ->type_name("");
  command.add_option("B", options.b.path, "Graph after, - for standard input")->required()->type_name("");
  add_input_form(command, choices.input.from);
  command.add_flag("--summary", options.summary, "Only counts: by kind, by op and by module");
  command.add_flag("--full", options.full, "List every node that differs, and every row of the tables");
  command
      .add_option("--html", options.html,
                  "Write the two graphs side by side as one HTML file that needs nothing else")
      ->type_name("FILE");
  choose(command
             .add_option("--ignore", options.ignore,
                         "Differences that do not count: names, order, metadata, types, provenance")
             ->type_name("KINDS")
             ->delimiter(',')
             ->take_all()
             ->expected(1),
         {"names", "order", "metadata", "types", "provenance"});
  command.footer(
      "Exit codes: 0 the graphs are the same, 1 they differ, 2 trouble.\n"
      "Examples:\n"
      "  epweave diff IN.epw OUT.epw --summary\n"
      "  epweave diff IN.epw OUT.epw --html page.html\n"
      "  epweave diff A.epw B.epw --ignore names,order,metadata");
}

void add_stats_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph to count, - for standard input");
  add_more(command, choices, "More graphs: one table, a column for each");
}

void add_overlap_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Chunked graph, - for standard input");
  add_more(command, choices, "More graphs: one table, a row for each");
  command
      .add_option("--before", choices.overlap.before.path,
                  "Graph to compare with, such as the unscheduled one")
      ->type_name("FILE");
  command
      .add_option("--trace", choices.overlap.trace,
                  "Write the order of issue as a trace for ui.perfetto.dev, that of --before too")
      ->type_name("FILE");
  take_whole_number(command
                        .add_option("--max-exposed", choices.overlap.max_exposed,
                                    "Exit with 1 where more token exchanges than this are exposed, those of "
                                    "undivided modules included")
                        ->type_name("N"),
                    0, 1000000);
  command.add_flag("--all", choices.overlap.all, "List every region, though others say the same");
}

void add_report_options(CLI::App& command, Choices& choices) {
  command.add_option("A", choices.input.path, "Graph before, - for standard input")
      ->required()
      ->type_name("");
  command
      .add_option("B", choices.report.b.path,
                  "Graph that passes of epweave made from A, - for standard input")
      ->required()
      ->type_name("");
  add_input_form(command, choices.input.from);
  command
      .add_option("-o,--output", choices.report.outputs,
                  "File to write, by its ending: .html, .md or .json; once for each (default: -, Markdown to "
                  "standard output)")
      ->type_name("FILE")
      ->take_all()
      ->expected(1);
  command
      .add_option("--cluster", choices.report.cluster,
                  "Machine that times are predicted for: a built-in shape or a file, and changes of it "
                  "(default: that of the passes that made B, else h100)")
      ->type_name("NAME|FILE");
  command
      .add_option("--costs", choices.report.costs,
                  "Measured costs, as epweave-replay run --costs writes them")
      ->type_name("FILE");
}

void add_simulate_options(CLI::App& command, Choices& choices) {
  SimulateOptions& options = choices.simulate;
  add_input(command, choices.input, "Graph to simulate, - for standard input");
  command
      .add_option(
          "--cluster", options.cluster,
          "Machine to predict for: h100 (default), h100-2x4, or a JSON file; 'h100+nic=4e11' changes it")
      ->type_name("NAME|FILE");
  command.add_option("--set", options.set, "Change a parameter of the machine: nic=4e11")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->expected(1);
  add_pricing(command, options.pricing);
  command
      .add_option("--trace", options.trace,
                  "Write streams, live bytes and the critical path for ui.perfetto.dev")
      ->type_name("FILE");
  command
      .add_option("--measured", options.measured,
                  "Compare with a measured step of this graph, as epweave-replay run --timeline writes it")
      ->type_name("TIMELINE");
  command
      .add_option("--baseline", options.baseline,
                  "Report (--json) to compare with: exit 1 where something hidden is exposed now, or "
                  "the step or its peak memory grew")
      ->type_name("REPORT");
  take_number(command
                  .add_option("--tolerance", options.tolerance,
                              "Share by which the step and its peak memory may grow (default 0.01)")
                  ->type_name("SHARE"),
              Zero::kAllowed);
}

void add_verify_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph to check, - for standard input");
  command
      .add_option("B", choices.more,
                  "Graph that passes of epweave made from G; with --ranks the graphs of the other ranks")
      ->type_name("");
  command.add_flag("--ranks", choices.ranks,
                   "Check that the graphs, one for each rank or one that all ranks run, issue matching "
                   "collectives and cannot wait for each other");
  command.add_flag(
      "--explain-literals", choices.explain_literals,
      "With --ranks: also list numbers that look like offsets of one rank's shard and are not proved "
      "to be");
  command.add_flag("--assume-none", choices.assume_none,
                   "Of a rewrite: exit with 1 where the proof rests on an assumption, and list all of them");
  command
      .add_option("--fwd", choices.forward.path,
                  "Check that this graph, then that of --bwd, compute what G computes (partition)")
      ->type_name("FILE");
  command.add_option("--bwd", choices.backward.path, "The backward half")->type_name("FILE");
  add_tangents(command, choices.tangents);
}

void add_doctor_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph to look at, - for standard input");
}

void add_explain_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph that has the node, - for standard input");
  command.add_option("NODE", choices.node, "The node's name")->required()->type_name("");
}

void add_passes_options(CLI::App& command, Choices& choices) {
  command.add_option("NAME", choices.listed, "Only these passes and presets")->type_name("");
}

}  // namespace epweave::cli
