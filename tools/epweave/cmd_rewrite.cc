#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "commands.h"
#include "common/graphs.h"
#include "common/kept_context.h"
#include "common/version.h"
#include "overlap_report.h"
#include "pipeline/pipeline.h"
#include "plan_view.h"
#include "reproducer.h"
#include "watch.h"

namespace epweave::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Pipeline requested_pipeline(const RewriteOptions& options) {
  if (options.pipeline.empty() == options.preset.empty())
    throw UsageError("give one of -p PIPELINE and --preset PRESET; `epweave passes` lists both");
  return options.preset.empty() ? parse_pipeline(options.pipeline) : expand_preset(options.preset);
}

// What prints and stops takes no option of a rewrite that goes on: it would do nothing.
void refuse_idle_options(const RewriteOptions& options) {
  if (options.print_pipeline && options.print_plan)
    throw UsageError("--print-pipeline and --print-plan print and stop: give one of them");
  if (options.print_plan && options.reproducer)
    throw UsageError("--print-plan takes IN and a pipeline, no --reproducer");
  const std::pair<const char*, bool> kIdle[] = {{"-o", options.output.path != "-"},
                                                {"--report", !options.report.empty()},
                                                {"--dump-dir", !options.dump_dir.empty()},
                                                {"--print-after", !options.print_after.empty()},
                                                {"--print-changed", options.print_changed},
                                                {"--time-passes", options.time_passes},
                                                {"--keep-reproducer", options.keep.has_value()}};
  for (const auto& [option, is_given] : kIdle)
    if (is_given)
      throw UsageError(fmt::format("{} prints and stops: leave out {}",
                                   options.print_plan ? "--print-plan" : "--print-pipeline", option));
}

void show_pipeline(const Pipeline& pipeline, Console& console) {
  const std::string text = print_pipeline(pipeline);
  if (!console.json()) return console.print(text + "\n");
  Json passes = Json::array();
  for (const PassCall& call : pipeline.calls)
    passes.push_back({{"name", call.pass->name}, {"options", print_options(call.options)}});
  console.print(report_text({{"pipeline", text}, {"passes", std::move(passes)}}));
}

VerifyPolicy policy_named(const std::string& name) {
  if (name == "off") return VerifyPolicy::kOff;
  return name == "end" ? VerifyPolicy::kEnd : VerifyPolicy::kEach;
}

// What a rewrite that succeeded was shown to keep.
std::string_view verified_when(const std::string& verify) {
  switch (policy_named(verify)) {
    case VerifyPolicy::kOff:
      return "not verified";
    case VerifyPolicy::kEnd:
      return "verified at the end";
    case VerifyPolicy::kEach:
      return "verified after each pass";
  }
  EPWEAVE_CHECK(false);
}

// Where a bug of ours leaves its reproducer if the user did not say.
std::string default_reproducer(const OutputOptions& output) {
  const bool is_file = output.path != "-" && !output.path.starts_with("/dev/");
  return (is_file ? output.path : "epweave") + ".reproducer.epw";
}

class Rewrite {
 public:
  Rewrite(const RewriteOptions& options, const Pipeline& pipeline, Console& console)
      : options_(options), pipeline_(pipeline), console_(console), watch_(options, pipeline, console) {}

  int run() {
    const auto start_read = Clock::now();
    Graph input = read();
    files_.read = seconds_since(start_read);
    return run(std::move(input));
  }

  int run(Graph input) {
    nodes_given_ = input.step().order.size();
    const std::string sha256 = sha256_of_graph(input);
    const Graph output = run_passes(std::move(input), sha256);
    const auto start_write = Clock::now();
    write(output);
    files_.write = seconds_since(start_write);
    if (options_.time_passes) console_.requested(watch_.times_text(files_));
    if (console_.json()) report(output, sha256);
    say_verdict(output);
    return kFine;
  }

 private:
  Graph read() {
    if (policy_named(options_.verify) == VerifyPolicy::kOff)
      return read_sound_input(options_.input, kept_context(), Soundness::kStructure);
    VerifiedInput input = read_verified_input(options_.input, kept_context());
    input_violations_ = std::move(input.violations);
    return std::move(input.graph);
  }

  std::string display_name() const {
    return options_.output.path == "-" ? "standard output" : options_.output.path;
  }

  // In a shell pipeline the next command has the word, and JSON says it in its way.
  void say_verdict(const Graph& output) {
    const std::string line = fmt::format("{}: {} -> {} nodes, {}", display_name(), nodes_given_,
                                         output.step().order.size(), verified_when(options_.verify));
    if (options_.output.path == "-" || console_.json())
      console_.detail(line);
    else
      console_.info(line);
  }

  // The graph and its report, both or neither.
  void write(const Graph& output) {
    const bool only_runs = options_.reproducer && options_.output.path == "-";
    std::optional<OutputFile> graph_file, report_file;
    if (!only_runs) graph_file.emplace(options_.output.path);
    if (!options_.report.empty()) {
      report_file.emplace(options_.report);
      report_file->write(overlap_report_for(options_.report, output, options_.output.path));
    }
    if (graph_file) {
      encode_output(output, options_.output, *graph_file);
      graph_file->commit();
    } else {
      console_.info(fmt::format("{}: the pipeline runs; -o FILE keeps the result", *options_.reproducer));
    }
    if (report_file) report_file->commit();
  }

  // A declined graph is the user's own and the message says what to do, so it is kept only on
  // request; a bug of ours leaves a reproducer always.
  Graph run_passes(Graph input, const std::string& sha256) {
    const RunnerOptions runner{.tool = tool_name(),
                               .input_sha256 = sha256,
                               .verify = policy_named(options_.verify),
                               .input_violations = input_violations_,
                               .hooks = watch_.hooks()};
    try {
      return run_pipeline(std::move(input), pipeline_, runner);
    } catch (const PassError& error) {
      if (options_.keep) keep(error, *options_.keep);
      throw;
    } catch (const InputError& error) {  // such as a file of --dump-dir that cannot be written
      if (options_.keep) keep(error, *options_.keep);
      throw;
    } catch (const std::exception& error) {
      if (!options_.reproducer || options_.keep)
        keep(error, options_.keep.value_or(default_reproducer(options_.output)));
      throw;
    }
  }

  // What the pass that failed was given; nothing where none did.
  void keep(const std::exception& error, const std::string& path) {
    const auto& failure = watch_.failure();
    if (!failure) return;
    const Reproducer reproducer{.input = failure->first,
                                .pipeline = failure->second,
                                .verify = options_.verify,
                                .error = error.what()};
    try {
      console_.requested(fmt::format("reproducer: {}", write_reproducer(reproducer, path)));
    } catch (const InputError& trouble) {
      console_.warn(fmt::format("no reproducer: {}", trouble.what()));
    }
  }

  void report(const Graph& output, const std::string& sha256) {
    Json report = {{"tool", tool_name()},
                   {"pipeline", print_pipeline(pipeline_)},
                   {"verify", options_.verify},
                   {"input", {{"file", options_.input.path}, {"nodes", nodes_given_}, {"sha256", sha256}}},
                   {"output", {{"file", options_.output.path}, {"nodes", output.step().order.size()}}},
                   {"passes", watch_.report()}};
    if (options_.time_passes) report["times"] = watch_.times_report(files_);
    console_.print(report_text(report));
  }

  const RewriteOptions& options_;
  const Pipeline& pipeline_;
  Console& console_;
  Watch watch_;
  std::optional<std::vector<Violation>> input_violations_;  // what reading found
  std::size_t nodes_given_ = 0;
  FileTimes files_;
};

void check_report(const RewriteOptions& options, const Console& console) {
  if (options.report == "-" && console.json())
    throw UsageError("--report - shares standard output with --json: give it a file");
}

int run_reproducer(RewriteOptions options, Console& console) {
  if (!options.input.path.empty() || !options.pipeline.empty() || !options.preset.empty())
    throw UsageError("--reproducer FILE brings its graph and pipeline: give no IN, -p or --preset");
  options.input.path = *options.reproducer;
  std::optional<Reproducer> reproducer =
      take_reproducer(read_sound_input(options.input, nullptr, Soundness::kStructure));
  if (!reproducer)
    throw InputError(
        fmt::format("{}: no reproducer: its info names no pipeline", display_name(options.input)));
  const Pipeline pipeline = parse_pipeline(reproducer->pipeline);
  if (options.print_pipeline) {
    show_pipeline(pipeline, console);
    return kFine;
  }
  console.detail(fmt::format("left by: {}", reproducer->error));
  if (reproducer->verify == "off" || reproducer->verify == "end") options.verify = reproducer->verify;
  if (options.output.path != "-") check_output(options.output);
  check_report(options, console);
  return Rewrite(options, pipeline, console).run(reproducer->input);
}

}  // namespace

int rewrite(const RewriteOptions& options, Console& console) {
  if (options.print_pipeline || options.print_plan) refuse_idle_options(options);
  if (options.reproducer) return run_reproducer(options, console);
  const Pipeline pipeline = requested_pipeline(options);
  if (options.print_pipeline) {
    show_pipeline(pipeline, console);
    return kFine;
  }
  if (options.input.path.empty()) throw UsageError("give a graph to rewrite: IN, or - for standard input");
  if (console.json() && options.output.path == "-" && !options.print_plan)
    throw UsageError("--json and the graph cannot both go to standard output: give -o FILE");
  if (options.print_plan) return show_plan(options, pipeline, console);
  if (options.report == "-" && options.output.path == "-")
    throw UsageError("--report - shares standard output with the graph: give it a file");
  check_report(options, console);
  check_output(options.output);
  return Rewrite(options, pipeline, console).run();
}

}  // namespace epweave::cli
