// What epweave-replay's command line may say.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "common/arguments.h"
#include "common/command_files.h"
#include "common/completion.h"
#include "common/version.h"
#include "replay_commands.h"

namespace epweave::cli {
namespace {

constexpr const char* kAbout = "Executes training graphs on virtual ranks and compares what they compute.";
constexpr std::uint64_t kMostRanks = 65536;

struct Choices {
  ConsoleOptions console;
  StepsCommandOptions steps;
  RunCommandOptions run;
  CheckCommandOptions check;
  std::string completion;
  bool writes_nothing = false;
};

void add_graph(CLI::App& command, const char* name, InputOptions& input, const char* help) {
  command.add_option(name, input.path, help)->required()->type_name("");
}

// A process's place among others; only with a transport that joins processes.
void take_place(CLI::Option* option, std::uint64_t least, std::uint64_t most) {
  take_whole_number(option->type_name("N"), least, most);
}

// `emulated`, the GPU's kernels run by the CPU, is for tests.
void add_device(CLI::App& command, const char* name, std::string& device, const char* help) {
  const auto check = [](const std::string& text) -> std::string {
    const bool has_number = text.starts_with("cuda:") && text.size() > 5 && text.size() < 9 &&
                            text.find_first_not_of("0123456789", 5) == std::string::npos;
    if (text == "cpu" || text == "cuda" || text == "emulated" || has_number) return "";
    return "'" + text + "' is no device: cpu, cuda, cuda:0, cuda:1, ...";
  };
  command.add_option(name, device, help)->check(check)->type_name("DEVICE");
}

void add_replay(CLI::App& command, ReplayOptions& replay) {
  take_whole_number(
      command.add_option("--ranks", replay.ranks, "Number of ranks, where the graph does not say")
          ->type_name("N"),
      1, kMostRanks);
  take_whole_number(
      command.add_option("--seed", replay.seed, "Seed of the inputs (default 0)")->type_name("S"), 0,
      kAnySeed);
  take_number(command
                  .add_option("--deadline", replay.deadline,
                              "Seconds a rank waits for the others (default: 60, or ten times a "
                              "step as --dry-run predicts it, or ten times the longest that it takes "
                              "itself from one wait to the next)")
                  ->type_name("SECONDS"),
              Zero::kRefused);
  command.add_flag("--report-types", replay.report_types,
                   "Count recorded types that values contradict and go on, instead of stopping there");
  take_number(command
                  .add_option("--memory", replay.memory,
                              "Refuse graphs that need more memory than this (default: all there is)")
                  ->type_name("GIB"),
              Zero::kRefused);
  add_device(command, "--device", replay.device, "Where graphs run: cpu, cuda, or cuda:N for GPU N");
  choose(command
             .add_option("--math", replay.math,
                         "On a GPU: portable, the same bits everywhere; or native, products by cuBLASLt")
             ->type_name("KIND"),
         {"portable", "native"});
  command.add_flag("--pin-rows", replay.pin_rows,
                   "In native math, one algorithm of the library for all numbers of rows of a product");
  choose(command
             .add_option("--data", replay.data,
                         "Inputs: real numbers, or integers from -2 to 2, whose sums are exact")
             ->type_name("KIND"),
         {"real", "integer"});
  command
      .add_option(
          "--inputs", replay.inputs,
          "Take inputs from this safetensors file, by name; those that no file has are made. May be repeated")
      ->allow_extra_args(false)
      ->type_name("FILE");
  command
      .add_option("--recipe", replay.recipe,
                  "Make inputs as this JSON file says (epweave-replay recipe prints one)")
      ->type_name("FILE");
  take_whole_number(
      command
          .add_option(
              "--jitter", replay.jitter,
              "Delay the ranks by random times and issue the steps in another legal order, from this seed")
          ->type_name("SEED"),
      0, kAnySeed);
  command.add_flag("--poison", replay.poison, "Fill new and freed memory with NaN patterns");
  command.add_flag("--dry-run", replay.dry_run,
                   "Make and run nothing: say how much memory, copies, flops and time it would take");
  command
      .add_option("--costs-from", replay.costs_from,
                  "With --dry-run, take times from this file, which run --costs wrote")
      ->type_name("FILE");
}

void add_transport(CLI::App& command, TransportOptions& transport) {
  choose(command
             .add_option("--transport", transport.name,
                         "How ranks meet: local, all in this process; or nccl, each a process that "
                         "torchrun, srun or mpirun started, with a GPU of its own")
             ->type_name("KIND"),
         {"local", "nccl"});
  take_place(command.add_option("--rank", transport.rank, "This process's rank, where no launcher says"), 0,
             kMostRanks - 1);
  take_place(command.add_option("--world-size", transport.world_size,
                                "The number of processes, where no launcher says"),
             1, kMostRanks);
  take_place(command.add_option(
                 "--local-rank", transport.local_rank,
                 "This process among those of its host, where no launcher says: the number of its GPU"),
             0, kMostRanks - 1);
  command
      .add_option("--rendezvous", transport.rendezvous,
                  "Where the processes meet: HOST:PORT of rank 0, or file:PATH in a folder that all see")
      ->type_name("PLACE");
  command
      .add_option("--report-dir", transport.report_dir,
                  "Write each rank's report to rankN.json in this folder")
      ->type_name("DIR");
}

// Of run; check takes it to say why it is refused.
CLI::Option* add_nccl_native(CLI::App& command, TransportOptions& transport) {
  return command.add_flag("--nccl-native", transport.nccl_native,
                          "NCCL reduces itself, as in a training job, in an order of its own; else our "
                          "kernels do, in that of virtual ranks");
}

void add_measuring(CLI::App& command, RunCommandOptions& run) {
  constexpr std::uint64_t kMostRuns = 100000;
  take_whole_number(
      command
          .add_option("--repeat", run.measure.repeat, "Run the step this often and measure it (default 1)")
          ->type_name("N"),
      1, kMostRuns);
  take_whole_number(command
                        .add_option("--warm-up", run.measure.warm_up,
                                    "Run the step this often before measuring (default 0)")
                        ->type_name("N"),
                    0, kMostRuns);
  command
      .add_option("--timeline", run.measure.timeline,
                  "Write when each step ran in the last run to this file, for chrome://tracing or Perfetto")
      ->type_name("FILE");
  command
      .add_option("--costs", run.measure.costs,
                  "Write measured times, per op and shape and per collective and size, to this JSON file")
      ->type_name("FILE");
  take_place(command.add_option("--measure-rank", run.measure.rank,
                                "With --timeline or --costs, measure this virtual rank alone, one node at a "
                                "time: the ranks compute by turns, and on a GPU a node's kernels begin once "
                                "all of them are launched"),
             0, kMostRanks - 1);
  command.add_flag("--nvtx", run.nvtx, "On a GPU, name ranges by module and node for profilers");
  command.add_flag("--cuda-graphs", run.cuda_graphs,
                   "On a GPU, launch stretches of kernels as CUDA graphs (epweave-replay steps shows which)");
}

// Examples, for --help and the manual page.
void add_examples(CLI::App& app) {
  static const std::pair<const char*, const char*> kExamples[] = {
      {"run",
       "Examples:\n"
       "  epweave-replay run G.epw --outputs results.safetensors\n"
       "  epweave-replay run G.epw --device cuda --warm-up 2 --repeat 5 --costs costs.json\n"
       "  epweave-replay run G.epw --device cuda --warm-up 2 --repeat 5 --costs costs.json --measure-rank 0\n"
       "  epweave-replay run G.epw --device cuda --warm-up 2 --repeat 5 --cuda-graphs\n"
       "  torchrun --nproc-per-node 4 --no-python epweave-replay run G.epw --transport nccl --device cuda"},
      {"check",
       "Examples:\n"
       "  epweave-replay check IN.epw OUT.epw\n"
       "  epweave-replay check IN.epw OUT.epw --data integer --json\n"
       "  torchrun --nproc-per-node 4 --no-python epweave-replay check IN.epw OUT.epw --transport nccl "
       "--device cuda"},
      {"steps",
       "Examples:\n"
       "  epweave-replay steps G.epw\n"
       "  epweave-replay steps G.epw --cuda-graphs"},
      {"recipe", "Example:\n  epweave-replay recipe > recipe.json"},
  };
  for (const auto& [name, text] : kExamples) app.get_subcommand(name)->footer(text);
}

std::unique_ptr<CLI::App> make_app(Choices& choices) {
  auto app = std::make_unique<CLI::App>(kAbout, kReplayProgram);
  app->set_version_flag("--version", version_text(kReplayProgram),
                        "Print the versions of the tool and its libraries");
  CLI::App& run =
      *app->add_subcommand("run", "Execute a graph on all its ranks: loss, gradient norms, hashes, times");
  add_graph(run, "G", choices.run.input, "Graph to run, - for standard input");
  add_input_form(run, choices.run.input.from);
  add_replay(run, choices.run.replay);
  run.add_option("--outputs", choices.run.outputs,
                 "Write outputs and buffers of all ranks to this safetensors file")
      ->type_name("FILE");
  run.add_option("--save-inputs", choices.run.save_inputs,
                 "Write the inputs of all ranks, as they were before the run, to this safetensors file")
      ->type_name("FILE");
  add_transport(run, choices.run.transport);
  add_nccl_native(run, choices.run.transport);
  add_measuring(run, choices.run);
  CLI::App& check = *app->add_subcommand("check", "Execute two graphs and compare their outputs and nodes");
  add_graph(check, "A", choices.check.a, "The original, - for standard input");
  add_graph(check, "B", choices.check.b, "What it was rewritten to, - for standard input");
  add_input_form(check, choices.check.a.from);
  check
      .add_option("--reference", choices.check.reference.path,
                  "Compare outputs with those of this graph too, such as another tool's rewrite of A")
      ->type_name("FILE");
  add_replay(check, choices.check.replay);
  add_device(check, "--device-a", choices.check.device_a, "Where A runs, if not where --device says");
  add_device(check, "--device-b", choices.check.device_b, "Where B runs, if not where --device says");
  choose(
      check
          .add_option("--bounds", choices.check.bounds,
                      "Bounds of regrouped sums: made by running both graphs again, on their device (device, "
                      "the default where it is one for both) or on the CPU (cpu), or none: such values are "
                      "unverified")
          ->type_name("KIND"),
      {"device", "cpu", "none"});
  add_nccl_native(check, choices.check.transport)->group("");             // to say why it is refused
  check.add_flag("--cuda-graphs", choices.check.cuda_graphs)->group("");  // to say why it is refused
  add_transport(check, choices.check.transport);
  CLI::App& steps = *app->add_subcommand("steps", "Print what a rank's host thread does, in order");
  add_graph(steps, "G", choices.steps.input, "Graph, - for standard input");
  add_input_form(steps, choices.steps.input.from);
  steps.add_flag("--cuda-graphs", choices.steps.cuda_graphs,
                 "Mark the stretches that run --cuda-graphs makes graphs of, and why each goes no further");
  app->add_subcommand("recipe", "Print how inputs are made where --recipe says nothing, as JSON");
  for (CLI::App* command : {&run, &check})
    command->add_flag("--write-nothing", choices.writes_nothing)->group("");  // of a second run
  for (CLI::App* command : app->get_subcommands({})) add_console(*command, choices.console);
  add_completion(*app, choices.completion);
  add_help(*app);
  add_examples(*app);
  app->footer(program_footer(Program::kReplay));  // at the end: commands made behind it would have it, too
  return app;
}

// The commands, with what the values of some options are.
std::vector<CommandHelp> commands_of(const CLI::App& app) {
  std::vector<CommandHelp> commands = list_commands(app);
  for (CommandHelp& command : commands)
    for (OptionHelp& option : command.options)
      if (option.value == "DEVICE") option.choices = {"cpu", "cuda"};  // and cuda:N
  return commands;
}

ProgramHelp program_help(const CLI::App& app) {
  return {
      kReplayProgram,
      "execute training graphs on virtual ranks",
      "Executes a graph without PyTorch, on all its ranks in one process or each in its own, and compares "
      "what two graphs compute.\n"
      "It sees no pass: what it finds equal is equal whatever rewrote it.",
      {exit_status_section(Program::kReplay),
       {"ENVIRONMENT", ".TP\nNO_COLOR\nNo colour in messages, where it is set and not empty.\n"},
       {"SEE ALSO", ".BR epweave (1),\nwhich rewrites graphs.\n"}},
      commands_of(app)};
}

// The second run of a command (replay_blocking.h) leaves the files of the first as they are.
void forget_files(Choices& choices) {
  for (std::string* path : {&choices.run.outputs, &choices.run.save_inputs, &choices.run.measure.timeline,
                            &choices.run.measure.costs, &choices.run.transport.report_dir,
                            &choices.check.transport.report_dir, &choices.console.log_file})
    path->clear();
}

void require_dry_run(const ReplayOptions& options) {
  if (!options.costs_from.empty() && !options.dry_run)
    throw UsageError("--costs-from is of --dry-run: it says where times are taken from");
}

void require_processes(const TransportOptions& transport) {
  if (transport.has_processes()) return;
  const std::pair<const char*, bool> kPlaces[] = {{"--rank", transport.rank.has_value()},
                                                  {"--world-size", transport.world_size.has_value()},
                                                  {"--local-rank", transport.local_rank.has_value()},
                                                  {"--rendezvous", !transport.rendezvous.empty()},
                                                  {"--nccl-native", transport.nccl_native}};
  for (const auto& [option, is_given] : kPlaces)
    if (is_given)
      throw UsageError(fmt::format("{} is for ranks that are processes: --transport nccl", option));
}

// The order of NCCL's sums is not that of the bounds, which are made of the documented one.
void require_documented_sums(const Choices& choices) {
  if (choices.check.transport.nccl_native)
    throw UsageError(
        "--nccl-native is of run: NCCL adds up in an order of its own, in which a bucket's sums need not be "
        "those "
        "of its pieces, and check compares bits. Compare the hashes of run, or check without it");
}

// A graph is launched as a whole, so what looks at one node at a time goes without.
void require_whole_stretches(const Choices& choices) {
  if (choices.check.cuda_graphs)
    throw UsageError(
        "--cuda-graphs is of run: check looks at the value of every node as it is made, and a CUDA graph is "
        "launched as a whole. Compare the hashes of run with and without it");
  const RunCommandOptions& run = choices.run;
  const bool is_on_cpu = run.transport.name == "local" && run.replay.device == "cpu";
  if (run.nvtx && is_on_cpu) throw UsageError("--nvtx is a GPU's: give --device cuda");
  if (!run.cuda_graphs) return;
  if (is_on_cpu) throw UsageError("--cuda-graphs is a GPU's: give --device cuda");
  for (const auto& [option, path] :
       {std::pair{"--timeline", &run.measure.timeline}, std::pair{"--costs", &run.measure.costs}})
    if (!path->empty())
      throw UsageError(fmt::format(
          "{} times every node, and a CUDA graph is launched as a whole: leave out {} or --cuda-graphs. "
          "--repeat alone measures the step",
          option, option));
}

void require_spans(const RunCommandOptions& run) {
  if (!run.measure.rank) return;
  if (run.transport.has_processes())
    throw UsageError(
        "--measure-rank is for virtual ranks: with --transport nccl each rank has a GPU of its own, and "
        "--costs "
        "has the spans of all");
  if (run.measure.timeline.empty() && run.measure.costs.empty())
    throw UsageError(
        "--measure-rank says whose spans are measured: give --timeline FILE or --costs FILE for them");
}

CommandFiles files_of(const Choices& choices) {
  CommandFiles files{.result = {},
                     .beside = {{"--outputs", choices.run.outputs},
                                {"--save-inputs", choices.run.save_inputs},
                                {"--timeline", choices.run.measure.timeline},
                                {"--costs", choices.run.measure.costs},
                                {"--log-file", choices.console.log_file}}};
  for (const ReplayOptions& replay : {choices.run.replay, choices.check.replay}) {
    files.inputs.insert(files.inputs.end(), replay.inputs.begin(), replay.inputs.end());
    files.inputs.push_back(replay.recipe);
    files.inputs.push_back(replay.costs_from);
  }
  for (const InputOptions& graph :
       {choices.steps.input, choices.run.input, choices.check.a, choices.check.b, choices.check.reference})
    files.inputs.push_back(graph.path);
  return files;
}

// Standard input and pipes can be read once: a second run would find nothing in them, or wait for
// ever.
bool can_be_read_again(const std::string& path) {
  std::error_code problem;
  const std::filesystem::file_status status = std::filesystem::status(path, problem);
  return path != "-" && (!exists(status) || is_regular_file(status) || is_directory(status));
}

bool can_run_again(const Choices& choices, const CommandFiles& files) {
  return std::ranges::all_of(files.inputs, can_be_read_again) && !choices.run.transport.has_processes() &&
         !choices.check.transport.has_processes();
}

}  // namespace

ReplayCommandLine parse_replay_command_line(int argc, char** argv) {
  const auto choices = std::make_shared<Choices>();
  choices->console.program = kReplayProgram;
  const std::unique_ptr<CLI::App> app = make_app(*choices);
  const auto print = [](std::string text) {
    return [text = std::move(text)](Console& console) { return console.print(text), kFine; };
  };
  if (const std::optional<std::string> text = parse_arguments(*app, argc, argv)) return {{}, print(*text)};
  require_documented_sums(*choices);
  for (const TransportOptions& transport : {choices->run.transport, choices->check.transport})
    require_processes(transport);
  for (const ReplayOptions& replay : {choices->run.replay, choices->check.replay}) require_dry_run(replay);
  require_whole_stretches(*choices);
  require_spans(choices->run);
  if (choices->writes_nothing) forget_files(*choices);
  choices->check.b.from = choices->check.reference.from = choices->check.a.from;
  const CommandFiles files = files_of(*choices);
  check_files(files);
  for (const NamedFile& file : files.beside)
    if (file.path == "-" && file.option != "--log-file")
      throw UsageError(file.option + " - shares standard output with the report: give it a file");
  const std::string name = app->get_subcommands().front()->get_name();
  if (name == "completion")
    return {choices->console, print(completion(program_help(*app), choices->completion))};
  if (name == "run")
    return {choices->console, [choices](Console& console) { return replay_run(choices->run, console); },
            can_run_again(*choices, files)};
  if (name == "check")
    return {choices->console, [choices](Console& console) { return replay_check(choices->check, console); },
            can_run_again(*choices, files)};
  if (name == "recipe") return {choices->console, [](Console& console) { return replay_recipe(console); }};
  return {choices->console, [choices](Console& console) { return replay_steps(choices->steps, console); }};
}

}  // namespace epweave::cli
