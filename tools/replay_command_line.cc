// What epweave-replay's command line may say. CLI11 is seen here, in command_line.cc,
// console_options.cc and command_help.cc alone.
#include <CLI/CLI.hpp>
#include <memory>

#include "command_files.h"
#include "completion.h"
#include "console_options.h"
#include "replay_commands.h"
#include "version.h"

namespace epweave::cli {
namespace {

constexpr const char* kAbout = "Executes training graphs on virtual ranks and compares what they compute.";
constexpr const char* kFooter =
    "Exit codes, the same with and without --json:\n"
    "  0  fine, or the same\n"
    "  1  different, not verified, or the run failed\n"
    "  2  the command line is wrong\n"
    "  3  a file cannot be read, is not a valid graph, or its inputs cannot be made\n"
    "  4  the graph cannot be executed: an op has no kernel, or it is too large\n"
    "  5  a bug of epweave\n"
    "  77 the device is not there\n"
    "Results go to standard output, messages to standard error; `-` stands for standard input.";

struct Choices {
  ConsoleOptions console;
  InputOptions steps;
  RunCommandOptions run;
  CheckCommandOptions check;
  std::string completion;
};

void add_graph(CLI::App& command, const char* name, InputOptions& input, const char* help) {
  command.add_option(name, input.path, help)->required()->type_name("");
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
  command.add_option("--ranks", replay.ranks, "Number of ranks, where the graph does not say")
      ->type_name("N");
  command.add_option("--seed", replay.seed, "Seed of the inputs (default 0)")->type_name("S");
  command.add_option("--deadline", replay.deadline, "Seconds a rank waits for the others (default 60)")
      ->check(CLI::PositiveNumber)
      ->type_name("SECONDS");
  command.add_flag("--report-types", replay.report_types,
                   "Count recorded types that values contradict and go on, instead of stopping there");
  command
      .add_option("--memory", replay.memory,
                  "Refuse graphs that need more memory than this (default: all there is)")
      ->check(CLI::PositiveNumber)
      ->type_name("GIB");
  add_device(command, "--device", replay.device, "Where graphs run: cpu, cuda, or cuda:N for GPU N");
  command
      .add_option("--math", replay.math,
                  "On a GPU: portable, the same bits everywhere; or native, products by cuBLASLt")
      ->check(CLI::IsMember(std::vector<std::string>{"portable", "native"}))
      ->type_name("KIND");
  command.add_flag("--pin-rows", replay.pin_rows,
                   "In native math, one algorithm of the library for all numbers of rows of a product");
  command
      .add_option("--data", replay.data,
                  "Inputs: real numbers, or integers from -2 to 2, whose sums are exact")
      ->check(CLI::IsMember(std::vector<std::string>{"real", "integer"}))
      ->type_name("KIND");
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
  command.add_option("--jitter", replay.jitter, "Delay the ranks by random times from this seed")
      ->type_name("SEED");
  command.add_flag("--poison", replay.poison, "Fill new and freed memory with NaN patterns");
}

void add_transport(CLI::App& command, RunCommandOptions& run) {
  command
      .add_option(
          "--transport", run.transport,
          "How ranks meet: local, all in this process; or nccl, each a process that torchrun, srun or "
          "mpirun started, with a GPU of its own")
      ->check(CLI::IsMember(std::vector<std::string>{"local", "nccl"}))
      ->type_name("KIND");
  command.add_option("--rank", run.process.rank, "This process's rank, where no launcher says")
      ->type_name("N");
  command
      .add_option("--world-size", run.process.world_size, "The number of processes, where no launcher says")
      ->type_name("N");
  command
      .add_option("--local-rank", run.process.local_rank,
                  "This process among those of its host, where no launcher says: the number of its GPU")
      ->type_name("N");
  command
      .add_option("--rendezvous", run.process.rendezvous,
                  "Where the processes meet: HOST:PORT of rank 0, or file:PATH in a folder that all see")
      ->type_name("PLACE");
  command.add_option("--report-dir", run.report_dir, "Write each rank's report to rankN.json in this folder")
      ->type_name("DIR");
}

void add_measuring(CLI::App& command, RunCommandOptions& run) {
  command.add_option("--repeat", run.measure.repeat, "Run the step this often and measure it (default 1)")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
  command
      .add_option("--warm-up", run.measure.warm_up, "Run the step this often before measuring (default 0)")
      ->check(CLI::Range(0, 100000))
      ->type_name("N");
  command
      .add_option("--timeline", run.measure.timeline,
                  "Write when each step ran in the last run to this file, for chrome://tracing or Perfetto")
      ->type_name("FILE");
  command
      .add_option("--costs", run.measure.costs,
                  "Write measured times, per op and shape and per collective and size, to this JSON file")
      ->type_name("FILE");
  command.add_flag("--nvtx", run.nvtx, "On a GPU, name ranges by module and node for profilers");
}

std::unique_ptr<CLI::App> make_app(Choices& choices) {
  auto app = std::make_unique<CLI::App>(kAbout, kReplayProgram);
  app->footer(kFooter);
  app->set_version_flag("--version", version_text(), "Print the versions of the tool and its libraries");
  app->require_subcommand(1);
  CLI::App& run =
      *app->add_subcommand("run", "Execute a graph on all its ranks: loss, gradient norms, hashes, times");
  add_graph(run, "G", choices.run.input, "Graph to run, - for standard input");
  add_replay(run, choices.run.replay);
  run.add_option("--outputs", choices.run.outputs,
                 "Write outputs and buffers of all ranks to this safetensors file")
      ->type_name("FILE");
  run.add_option("--save-inputs", choices.run.save_inputs,
                 "Write the inputs of all ranks, as they were before the run, to this safetensors file")
      ->type_name("FILE");
  add_transport(run, choices.run);
  add_measuring(run, choices.run);
  CLI::App& check = *app->add_subcommand("check", "Execute two graphs and compare their outputs and nodes");
  add_graph(check, "A", choices.check.a, "The original");
  add_graph(check, "B", choices.check.b, "What it was rewritten to");
  check
      .add_option("--reference", choices.check.reference.path,
                  "Compare outputs with those of this graph too, such as another tool's rewrite of A")
      ->type_name("C");
  add_replay(check, choices.check.replay);
  add_device(check, "--device-a", choices.check.device_a, "Where A runs, if not where --device says");
  add_device(check, "--device-b", choices.check.device_b, "Where B runs, if not where --device says");
  add_graph(*app->add_subcommand("steps", "Print what a rank's host thread does, in order"), "G",
            choices.steps, "Graph, - for standard input");
  app->add_subcommand("recipe", "Print how inputs are made where --recipe says nothing, as JSON");
  for (CLI::App* command : app->get_subcommands({})) add_console(*command, choices.console);
  app->add_subcommand("completion", "Print a completion script for a shell, or the manual page")
      ->add_option("SHELL", choices.completion, "bash, zsh, fish or man")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>{"bash", "zsh", "fish", "man"}))
      ->type_name("");
  return app;
}

ProgramHelp program_help(const CLI::App& app) {
  return {
      kReplayProgram,
      "execute training graphs on virtual ranks",
      "Executes a graph on all its ranks in one process, without PyTorch, and compares what two graphs "
      "compute.\n"
      "It sees no pass: what it finds equal is equal whatever rewrote it.",
      {{"EXIT STATUS",
        "0 fine, or the same; 1 different, not verified, or the run failed; 2 wrong command line; 3 a file\n"
        "cannot be read, is not a valid graph, or its inputs cannot be made; 4 an op has no kernel, or the\n"
        "graph is too large; 5 a bug of epweave; 77 the device is not there; the same with and without\n"
        "\\-\\-json.\n"},
       {"ENVIRONMENT", ".TP\nNO_COLOR\nNo colour in messages, where it is set and not empty.\n"},
       {"SEE ALSO", ".BR epweave (1),\nwhich rewrites graphs.\n"}},
      list_commands(app)};
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
  }
  for (const InputOptions& graph :
       {choices.steps, choices.run.input, choices.check.a, choices.check.b, choices.check.reference})
    files.inputs.push_back(graph.path);
  return files;
}

}  // namespace

ReplayCommandLine parse_replay_command_line(int argc, char** argv) {
  const auto choices = std::make_shared<Choices>();
  choices->console.program = kReplayProgram;
  const std::unique_ptr<CLI::App> app = make_app(*choices);
  const auto print = [](std::string text) {
    return [text = std::move(text)](Console& console) { return console.print(text), kFine; };
  };
  try {
    app->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto given = app->get_subcommands();
    return {{}, print((given.empty() ? app->help() : given.front()->help(kReplayProgram)) + "\n")};
  } catch (const CLI::CallForVersion& version) {
    return {{}, print(std::string(version.what()) + "\n")};
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  const CommandFiles files = files_of(*choices);
  check_files(files);
  for (const NamedFile& file : files.beside)
    if (file.path == "-" && file.option != "--log-file")
      throw UsageError(file.option + " - shares standard output with the report: give it a file");
  const std::string name = app->get_subcommands().front()->get_name();
  if (name == "completion")
    return {choices->console, print(completion(program_help(*app), choices->completion))};
  if (name == "run")
    return {choices->console, [choices](Console& console) { return replay_run(choices->run, console); }};
  if (name == "check")
    return {choices->console, [choices](Console& console) { return replay_check(choices->check, console); }};
  if (name == "recipe") return {choices->console, [](Console& console) { return replay_recipe(console); }};
  return {choices->console, [choices](Console& console) { return replay_steps(choices->steps, console); }};
}

}  // namespace epweave::cli
