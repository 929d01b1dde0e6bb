// Options of the commands that make graphs, and what several commands have.
#include "command_options.h"
#include "common/arguments.h"

namespace epweave::cli {
namespace {

constexpr std::uint64_t kMostJobs = 4096;
constexpr std::uint64_t kMostModules = 1000000;
constexpr std::uint64_t kLastRank = 1 << 16;
// Names of format_names() (io/file.h) that are written.
constexpr std::initializer_list<const char*> kForms = {"binary", "text", "json", "onnx", "onnx-ir10"};

void add_command(CLI::App& command, std::vector<std::string>& words) {
  command
      .add_option(kCommandWords, words,
                  "Behind --: the command and its arguments, {} for the file (else it comes last)")
      ->type_name("");
}

}  // namespace

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
                  "The same as OUT; of chakra: the folder to make, with a trace for each rank")
      ->type_name("OUT");
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
          "those of role tangent: names of nodes, or what the file calls the inputs")
      ->type_name("NAMES")
      ->delimiter(',')
      ->take_all()
      ->expected(1);
}

void add_partition_options(CLI::App& command, Choices& choices) {
  PartitionOptions& options = choices.partition;
  add_input(command, choices.input, "Joint graph of forward, loss and backward, - for standard input");
  command.add_option("--fwd", options.forward, "File for the forward graph")->required()->type_name("FILE");
  command.add_option("--bwd", options.backward, "File for the backward graph")->required()->type_name("FILE");
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
          "budget; without this option, what the step's region_activation_memory_budget says")
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

// Graphs behind the first one.
void add_more(CLI::App& command, Choices& choices, const char* help) {
  command.add_option("MORE", choices.more, help)->type_name("");
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
      0, kLastRank);
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
      0, kLastRank);
  command.add_option("-o,--output", choices.output.path, "Of make: the artifact")->type_name("OUT");
  add_output_form(command, choices.output);
  command.footer(
      "Exit codes of check: 0 every field agrees, 1 some does not; 3 no artifact.\n"
      "Examples:\n"
      "  epweave artifact make all.epw --config deterministic=true -o step.epw\n"
      "  epweave artifact check step.epw --config deterministic=true --against traced.epw");
}

}  // namespace epweave::cli
