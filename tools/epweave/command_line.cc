#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "common/arguments.h"
#include "common/command_files.h"
#include "common/completion.h"
#include "common/version.h"
#include "cost/cluster.h"
#include "pipeline/registry.h"

namespace epweave::cli {
namespace {

constexpr const char* kChakra = "chakra";
constexpr std::uint64_t kMostParts = 1000000;
constexpr std::uint64_t kMostJobs = 4096;
constexpr std::uint64_t kMostModules = 1000000;
constexpr std::uint64_t kMostRanks = 1 << 16;
constexpr const char* kAbout =
    "Rewrites PyTorch MoE training graphs so that expert-parallel communication hides behind compute.";

// Everything that an option can set.
struct Choices {
  ConsoleOptions console;
  InputOptions input;
  OutputOptions output;
  RewriteOptions rewrite;
  std::vector<std::string> more;  // graphs behind the first
  bool ranks = false, assume_none = false, explain_literals = false;
  std::string node;
  PrintOptions print;
  OverlapOptions overlap;
  SimulateOptions simulate;
  ReportCommand report;
  PartitionOptions partition;
  InputOptions forward, backward;     // halves, of verify
  std::vector<std::string> tangents;  // of the graph that they are halves of
  DiffCommand diff;
  ReduceOptions reduce;
  BisectCommand bisect;
  ExtractCommand extract;
  ResizeCommand resize;
  SpecializeCommand specialize;
  bool repair = false;
  ArtifactCommand artifact;
  ConvertOptions convert{.output = {.path = ""}};
  std::string completion;
};

// Names of format_names() (io/file.h) that are written.
constexpr std::initializer_list<const char*> kForms = {"binary", "text", "json", "onnx", "onnx-ir10"};

void add_input(CLI::App& command, InputOptions& input, const char* help) {
  command.add_option("G", input.path, help)->required()->type_name("");
  add_input_form(command, input.from);
}

void add_pricing(CLI::App& command, Pricing& pricing) {
  command.add_option("--costs", pricing.costs, "Measured costs, as epweave-replay run --costs writes them")
      ->type_name("FILE");
  choose(command
             .add_option("--unpriced", pricing.unpriced,
                         "What a call costs that nothing prices: refuse (default), or free")
             ->type_name("HOW"),
         {"refuse", "free"});
}

void add_convert_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph to convert, - for standard input");
  command.add_option("OUT", choices.convert.output.path, "File to write, - for standard output")
      ->type_name("");
  choose(
      command
          .add_option(
              "--to", choices.convert.output.to,
              "Form of the output: binary, text, json, onnx or onnx-ir10 (default: by extension); or chakra, "
              "execution traces of all ranks, priced, for ASTRA-sim")
          ->type_name("FORM"),
      {"binary", "text", "json", "onnx", "onnx-ir10", kChakra});
  command.add_flag("-f,--force", choices.convert.output.force, "Write binary even to a terminal");
  command
      .add_option("-o,--output", choices.convert.folder,
                  "Of chakra: the folder to make, with a trace for each rank")
      ->type_name("DIR");
  command
      .add_option(
          "--cluster", choices.convert.cluster,
          "Of chakra: the machine that it is priced for, a built-in shape or a file, and changes of it: "
          "h100-2x4+nic=400e9 (default: h100)")
      ->type_name("NAME|FILE");
  add_pricing(command, choices.convert.pricing);
}

void add_output_form(CLI::App& command, OutputOptions& output) {
  choose(command
             .add_option("--to", output.to,
                         "Form of the output: binary, text, json, onnx or onnx-ir10 (default: by extension)")
             ->type_name("FORM"),
         kForms);
  command.add_flag("-f,--force", output.force, "Write binary even to a terminal");
}

void add_rewrite_options(CLI::App& command, Choices& choices) {
  RewriteOptions& options = choices.rewrite;
  command.add_option("IN", choices.input.path, "Graph to rewrite, - for standard input")->type_name("");
  add_input_form(command, choices.input.from);
  command
      .add_option("-p,--pipeline", options.pipeline, "Passes to run: 'dce,chunk{roots=layers.*.moe,parts=2}'")
      ->type_name("PIPELINE");
  command
      .add_option("--preset", options.preset,
                  "Named pipeline to run: 'ep-overlap{roots=layers.*.moe,parts=2}'")
      ->type_name("PRESET");
  command.add_option("-o,--output", choices.output.path, "File to write, - for standard output (default)")
      ->type_name("OUT");
  add_output_form(command, choices.output);
  command.add_flag("--print-pipeline", options.print_pipeline, "Print the resolved pipeline and stop");
  command.add_flag(
      "--print-plan", options.print_plan,
      "Run the pipeline up to chunk, print what chunk decides about each region and node, and stop");
  command
      .add_option("--print-after", options.print_after,
                  "Print the graph on standard error after this pass, or all")
      ->type_name("PASS")
      ->take_all()
      ->expected(1);
  command.add_flag("--print-changed", options.print_changed,
                   "Print what each pass changed, as diff lists it, on standard error");
  command.add_option("--dump-dir", options.dump_dir, "Write the graph after each pass to DIR/NN-PASS.txt")
      ->type_name("DIR");
  command
      .add_option("--report", options.report,
                  "Write what runs under each token exchange of the result, as JSON if FILE ends in .json")
      ->type_name("FILE");
  command.add_flag("--time-passes", options.time_passes, "Print the time of each pass on standard error");
  choose(
      command
          .add_option("--verify", options.verify, "Check the graph: off, end, or after each pass (default)")
          ->type_name("WHEN"),
      {"off", "end", "each"});
  command
      .add_option("--reproducer", options.reproducer,
                  "Run what a failing pass left: a file with its graph and the rest of the pipeline")
      ->type_name("FILE");
  command
      .add_option("--keep-reproducer", options.keep,
                  "Where a pass that fails or declines the graph leaves a reproducer (default: "
                  "OUT.reproducer.epw where it fails, none where it declines)")
      ->type_name("FILE");
}

void add_tangents(CLI::App& command, std::vector<std::string>& names) {
  command
      .add_option(
          "--tangents", names,
          "Inputs that only backward is given, as the gradients of a pipeline stage's outputs, beside "
          "those of role tangent")
      ->type_name("NAMES")
      ->delimiter(',')
      ->take_all()
      ->expected(1);
}

void add_partition_options(CLI::App& command, Choices& choices) {
  PartitionOptions& options = choices.partition;
  add_input(command, choices.input, "Joint graph of forward, loss and backward, - for standard input");
  command.add_option("--fwd", options.forward, "File for the forward graph")->required()->type_name("F");
  command.add_option("--bwd", options.backward, "File for the backward graph")->required()->type_name("B");
  choose(
      command
          .add_option(
              "--policy", options.policy,
              "What to save: as PyTorch's partitioner (min-cut), as the nodes' recompute fields say (tags), "
              "or the best for a budget, else what is cheaper to compute again than to copy to the host, "
              "products "
              "and attention apart (exact, the default)")
          ->type_name("POLICY"),
      {"min-cut", "tags", "exact"});
  command
      .add_option(
          "--budget", options.budget,
          "With exact: the most to hold for backward, as a share of what no recomputation holds (0.5, in "
          "steps "
          "of 0.05, not where that would raise the peak) or in bytes (26000MiB), or the most to spend on "
          "recomputation (23.5ms). With min-cut: a share of what it saves else, PyTorch's activation memory "
          "budget")
      ->type_name("B");
  add_tangents(command, options.tangents);
  choose(command
             .add_option(
                 "--reshard", options.reshard,
                 "With exact: gather sharded parameters again in backward (always, the default), or never")
             ->type_name("WHEN"),
         {"always", "never"});
  command.add_option("--report", options.report, "Write what is saved and computed again as JSON")
      ->type_name("FILE");
}

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

// Graphs behind the first one.
void add_more(CLI::App& command, Choices& choices, const char* help) {
  command.add_option("MORE", choices.more, help)->type_name("");
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
  add_input(command, choices.input, "Graph before, - for standard input");
  command.add_option("B", choices.report.b.path, "Graph that passes of epweave made from it")
      ->required()
      ->type_name("");
  command
      .add_option("-o,--output", choices.report.outputs,
                  "File to write, by its ending: .html, .md or .json; once for each (default: Markdown to "
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
      ->type_name("SHAPE");
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
                  "makespan or peak grew")
      ->type_name("REPORT");
  take_number(command
                  .add_option("--tolerance", options.tolerance,
                              "Share by which makespan and peak may grow (default 0.01)")
                  ->type_name("SHARE"),
              Zero::kAllowed);
}

void add_command(CLI::App& command, std::vector<std::string>& words) {
  command
      .add_option("CMD", words,
                  "Behind --: the command and its arguments, {} for the file (else it comes last)")
      ->type_name("");
}

void add_reduce_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph to shrink; it is never written to");
  command
      .add_option("-o,--output", choices.output.path,
                  "File with the best so far; where it is there already, the reduction goes on from it")
      ->type_name("OUT");
  add_output_form(command, choices.output);
  take_number(command
                  .add_option("--timeout", choices.reduce.timeout,
                              "Seconds that a run of the command may take (default 0: any number)")
                  ->type_name("SECONDS"),
              Zero::kAllowed);
  take_whole_number(
      command
          .add_option("-j,--jobs", choices.reduce.jobs,
                      "Candidates to try at once (default 1); the result is the same, without --timeout")
          ->type_name("N"),
      1, kMostJobs);
  add_command(command, choices.reduce.command);
  command.footer(
      "Example: what of a graph makes a pass decline it with exit code 4?\n"
      "  epweave reduce IN.epw -o small.txt -- sh -c 'epweave rewrite {} -p chunk -o /dev/null; [ $? = 4 ]'");
}

void add_bisect_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph to rewrite, on which the command exits 0, - for standard input");
  command
      .add_option("-p,--pipeline", choices.bisect.pipeline,
                  "Passes to look among: 'dce,chunk{roots=layers.*.moe,parts=2}'")
      ->type_name("PIPELINE");
  command.add_option("--preset", choices.bisect.preset, "Named pipeline to look in")->type_name("PRESET");
  command
      .add_option("-o,--output", choices.bisect.folder,
                  "Folder for the graphs before and after the pass, and a script for reduce")
      ->type_name("DIR");
  take_number(
      command
          .add_option("--timeout", choices.bisect.timeout,
                      "Seconds that a run of the command may take, which then fails (default 0: any number)")
          ->type_name("SECONDS"),
      Zero::kAllowed);
  add_command(command, choices.bisect.command);
  command.footer(
      "CMD exits 0 where a graph is good, 125 where it cannot tell, 126 or 127 to end the search; all else "
      "is a "
      "failure.\n"
      "Exit codes: 0 one pass is found, 1 no graph fails, or CMD cannot tell which of several passes it is.\n"
      "Examples:\n"
      "  epweave bisect G.epw --preset ep-overlap -o found -- epweave-replay check G.epw {}\n"
      "  epweave reduce found/before.epw -o small.epw -- sh found/fails.sh");
}

void add_extract_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph of the whole step, - for standard input");
  command
      .add_option("--module", choices.extract.modules,
                  "Modules to extract, with all below them; * stands for one path element; once for each "
                  "pattern")
      ->type_name("PATTERN")
      ->take_all()
      ->expected(1);
  choose(command
             .add_option("--direction", choices.extract.direction,
                         "Nodes of forward (fwd), of backward (bwd), or both (default)")
             ->type_name("WHICH"),
         {"fwd", "bwd", "both"});
  take_whole_number(command
                        .add_option("--count", choices.extract.count,
                                    "Only the first N of the modules that the patterns select, as they run")
                        ->type_name("N"),
                    1, kMostModules);
  command.add_option("-o,--output", choices.output.path, "File to write, - for standard output (default)")
      ->type_name("OUT");
  add_output_form(command, choices.output);
  command.footer(
      "Examples:\n"
      "  epweave extract G.epw --module layers.3.moe -o moe.epw\n"
      "  epweave extract G.epw --module 'layers.*.attention' --direction fwd -o attention.epw");
}

void add_resize_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph to resize, - for standard input");
  command
      .add_option("--set", choices.resize.set,
                  "A size and its number, once for each; --list says which there are")
      ->type_name("NAME=N")
      ->take_all()
      ->expected(1);
  command.add_flag("--list", choices.resize.list, "Print the sizes that can be set, and write nothing");
  command.add_option("-o,--output", choices.output.path, "File to write, - for standard output (default)")
      ->type_name("OUT");
  add_output_form(command, choices.output);
  command.footer(
      "Examples:\n"
      "  epweave resize G.epw --list\n"
      "  epweave resize G.epw --set tokens=512 --set layers=2 -o small.epw");
}

void add_specialize_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph that holds for every rank, - for standard input");
  take_whole_number(
      command.add_option("--rank", choices.specialize.rank, "Write this rank's graph to OUT")->type_name("R"),
      0, kMostRanks);
  command.add_flag("--all", choices.specialize.all,
                   "Write every rank's graph to the folder OUT: rank-00000.epw, rank-00001.epw, ..");
  command.add_option("-o,--output", choices.output.path, "File, or folder with --all; - for standard output")
      ->type_name("OUT");
  add_output_form(command, choices.output);
  command.footer(
      "Examples:\n"
      "  epweave specialize G.epw --rank 3 -o rank3.epw\n"
      "  epweave specialize G.epw --all -o ranks");
}

void add_generalize_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph of one rank, - for standard input");
  add_more(command, choices, "Graphs of other ranks of the same job");
  command
      .add_option("-o,--output", choices.output.path,
                  "Graph for all ranks; not written where a difference is "
                  "not explained")
      ->type_name("OUT");
  add_output_form(command, choices.output);
  command.add_flag(
      "--repair", choices.repair,
      "Replace numbers of one rank that are proved to be offsets of a shard, also where the given "
      "ranks do not differ in them");
  command.footer(
      "Exit codes: 0 OUT is written, 1 something is not explained.\n"
      "Examples:\n"
      "  epweave generalize rank0.epw rank1.epw rank2.epw -o all.epw\n"
      "  epweave generalize traced.epw --repair -o all.epw");
}

void add_artifact_options(CLI::App& command, Choices& choices) {
  ArtifactCommand& options = choices.artifact;
  choose(command.add_option("ACTION", options.action, "make or check")->required()->type_name(""),
         {"make", "check"});
  add_input(command, choices.input, "Graph, or artifact to check, - for standard input");
  command
      .add_option("--config", options.config,
                  "A value of the configuration that the fingerprint is to hold, or that this run has")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->expected(1);
  command.add_option("--against", options.against.path, "Of check: the graph that this run would make")
      ->type_name("FILE");
  command.add_option("--allow", options.allow, "Of check: a field that may differ; said as a warning")
      ->type_name("FIELD")
      ->take_all()
      ->expected(1);
  take_whole_number(
      command.add_option("--rank", options.rank, "Of check: the rank that is to run the artifact")
          ->type_name("R"),
      0, kMostRanks);
  command.add_option("-o,--output", choices.output.path, "Of make: the artifact")->type_name("OUT");
  add_output_form(command, choices.output);
  command.footer(
      "Exit codes of check: 0 every field agrees, 1 some does not; 3 no artifact.\n"
      "Examples:\n"
      "  epweave artifact make all.epw --config deterministic=true -o step.epw\n"
      "  epweave artifact check step.epw --config deterministic=true --against traced.epw");
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
      ->type_name("F");
  command.add_option("--bwd", choices.backward.path, "The backward half")->type_name("B");
  add_tangents(command, choices.tangents);
}

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
      {"passes", "Example:\n  epweave passes --json"},
  };
  for (const auto& [name, text] : kExamples) app.get_subcommand(name)->footer(text);
}

void add_doctor_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph to look at, - for standard input");
}

void add_explain_options(CLI::App& command, Choices& choices) {
  add_input(command, choices.input, "Graph that has the node, - for standard input");
  command.add_option("NODE", choices.node, "The node's name")->required()->type_name("");
}

void add_no_options(CLI::App&, Choices&) {}

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
    {"passes", "List the passes and presets with their options", add_no_options},
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
  if (!to_chakra && !options.folder.empty())
    throw UsageError(
        "epweave convert takes '-o DIR' with --to chakra only: the file to write is its second argument: "
        "epweave convert IN OUT");
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
  if (name == "passes") return [](Console& console) { return list_passes(console); };
  return [app, choices](Console& console) {
    return console.print(completion(program_help(*app, *choices), choices->completion)), kFine;
  };
}

// A place that cannot be written is said before the work.
int run_command(const CommandFiles& files, const std::function<int(Console&)>& command, bool is_diff,
                Console& console) {
  try {
    require_writable(files);
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
