// The first pass of a pipeline after which a command fails, by halving, as git bisect does it.
#include <fmt/format.h>

#include <exception>

#include "base/counted.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "common/version.h"
#include "graph_command.h"
#include "io/file.h"
#include "output_folder.h"
#include "pipeline/pipeline.h"
#include "pipeline/runner.h"
#include "reproducer.h"

namespace epweave::cli {
namespace {

constexpr int kCannotTell = 125;                           // as git bisect has it
constexpr int kCannotExecute = 126, kNoSuchCommand = 127;  // as a shell says it

// One word of a shell's command; "$1" for {}.
std::string quoted_word(std::string_view word) {
  std::string text = "'";
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word.substr(i).starts_with("{}")) {
      text += "'\"$1\"'";
      ++i;
    } else if (word[i] == '\'') {
      text += "'\\''";
    } else {
      text += word[i];
    }
  }
  return text + "'";
}

// A path as one word of a command that a user copies: quoted where a shell would take it apart.
std::string path_word(const std::string& path) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%";
  if (path.find_first_not_of(kPlain) == path.npos) return path;
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

class Bisect {
 public:
  Bisect(const BisectCommand& options, Pipeline pipeline, Console& console)
      : options_(options),
        pipeline_(std::move(pipeline)),
        console_(console),
        command_({.words = options.command, .timeout = options.timeout, .is_verbose = console.verbose()}) {}

  int run() {
    try {
      return search();
    } catch (const Interrupted&) {
      console_.info("interrupted: nothing is written");
      return kInterrupted;
    }
  }

 private:
  struct Interrupted {};

  int search() {
    catch_interrupts();
    OutputFolder folder(options_.folder, "bisect writes the graphs before and after the pass there");
    graphs_.push_back(read_sound_input(options_.input, nullptr, Soundness::kStructure));
    run_passes();
    statuses_.resize(graphs_.size());
    if (test(0) != 0)
      throw UsageError(
          fmt::format("the command exits {} on {} already: no pass to look for (-v shows what it says)",
                      status_text(*statuses_[0]), display_name(options_.input)));
    const std::size_t last = find_last_result();
    if (*statuses_[last] == 0) return finish_without(last);
    halve(last);
    write(folder);
    report();
    return is_found() ? kFine : kDifferent;
  }

  // graphs_[k] is what the first k passes make. A pass that throws ends the pipeline: it is the
  // answer if the command exits 0 on all before it.
  void run_passes() {
    const RunnerOptions runner{
        .tool = tool_name(),
        .input_sha256 = sha256_of_graph(graphs_[0]),
        .verify = VerifyPolicy::kOff,
        .hooks = {.before_pass =
                      [&](const PassCall& call) {
                        if (is_interrupted()) throw Interrupted();
                        console_.progress(fmt::format("[{}/{}] {} ...", graphs_.size(),
                                                      pipeline_.calls.size(), call.pass->name));
                      },
                  .after_pass = [&](const PassReport& pass) { graphs_.push_back(pass.after); }}};
    try {
      run_pipeline(graphs_[0], pipeline_, runner);
    } catch (const std::exception&) {
      thrown_ = std::current_exception();
    }
  }

  // The command's exit status on graphs_[k]. Asked once for each.
  int test(std::size_t k) {
    if (statuses_[k]) return *statuses_[k];
    console_.progress(fmt::format("after {} of {} passes, run {}", k, graphs_.size() - 1, runs_ + 1));
    command_.put(0, graphs_[k]);
    const int status = command_.run();
    ++runs_;
    if (is_interrupted()) throw Interrupted();
    if (status == kCannotExecute || status == kNoSuchCommand)
      throw UsageError(
          fmt::format("the command exits {}: a command in it was not found or cannot be executed "
                      "(-v shows what it says)",
                      status));
    console_.detail(fmt::format("{}: the command exits {}", place_text(k), status_text(status)));
    statuses_[k] = status;
    return status;
  }

  // The last graph of which the command can tell; the input, if it can of no other.
  std::size_t find_last_result() {
    std::size_t k = graphs_.size() - 1;
    while (test(k) == kCannotTell) --k;
    return k;
  }

  // Keeps: exit 0 at good_, neither 0 nor 125 at bad_. Asks the graph nearest to the middle of
  // which the command can tell, the earlier one of two.
  void halve(std::size_t last) {
    bad_ = last;
    for (;;) {
      const std::optional<std::size_t> k = next();
      if (!k) return;
      const int status = test(*k);
      if (status == 0) {
        good_ = *k;
      } else if (status != kCannotTell) {
        bad_ = *k;
      }
    }
  }
  std::optional<std::size_t> next() const {
    const std::size_t middle = good_ + (bad_ - good_) / 2;
    for (std::size_t distance = 0; distance < bad_ - good_; ++distance) {
      if (middle >= good_ + 1 + distance && !statuses_[middle - distance]) return middle - distance;
      if (middle + distance < bad_ && middle + distance > good_ && !statuses_[middle + distance])
        return middle + distance;
    }
    return std::nullopt;
  }

  bool is_found() const { return good_ + 1 == bad_; }

  int finish_without(std::size_t last) {
    if (thrown_) {
      console_.info("the command exits 0 on all graphs before the pass that fails itself");
      std::rethrow_exception(thrown_);
    }
    if (console_.json()) console_.print(report_text(report_head()));
    console_.info(last + 1 == graphs_.size()
                      ? fmt::format("the command exits 0 after {}: none to find",
                                    last == 1 ? "the only pass" : fmt::format("all {} passes", last))
                      : fmt::format("{}: the command exits 0, and {} after all later passes: it cannot tell",
                                    place_text(last), kCannotTell));
    return kDifferent;
  }

  // The passes from the one behind graphs_[good_] to the one that made graphs_[bad_].
  Pipeline suspects() const {
    return {{pipeline_.calls.begin() + static_cast<std::ptrdiff_t>(good_),
             pipeline_.calls.begin() + static_cast<std::ptrdiff_t>(bad_)}};
  }

  void write(OutputFolder& folder) {
    write_reproducer({.input = graphs_[good_],
                      .pipeline = print_pipeline(suspects()),
                      .verify = "off",
                      .error = fmt::format("the command of bisect exits {} after it", bad_status())},
                     folder.place("before.epw"));
    write_graph(graphs_[bad_], folder.place("after.epw"));
    write_bytes(folder.place("fails.sh"), script());
    folder.commit();
  }

  // Whether a graph shows the same: what reduce asks about before.epw.
  std::string script() const {
    std::string words;
    bool has_place = false;
    for (const std::string& word : options_.command) {
      has_place |= word.find("{}") != word.npos;
      words += (words.empty() ? "" : " ") + quoted_word(word);
    }
    if (!has_place) words += " \"$1\"";
    return fmt::format(
        "#!/bin/sh\n"
        "# Exits 0 where the command exits 0 on the graph $1 and fails after the pass:\n"
        "#   epweave reduce before.epw -o small.epw -- sh fails.sh\n"
        "holds() {{ {}; }}\n"
        "holds \"$1\" || exit 1\n"
        "epweave rewrite \"$1\" -p {} --verify off -o \"$1.after.epw\" -q || exit 1\n"
        "holds \"$1.after.epw\"\n"
        "case $? in 0 | {} | {} | {}) exit 1 ;; esac\n"
        "exit 0\n",
        words, quoted_word(print_pipeline(suspects())), kCannotTell, kCannotExecute, kNoSuchCommand);
  }

  Json report_head() const {
    Json tests = Json::array();
    for (std::size_t k = 0; k < statuses_.size(); ++k)
      if (statuses_[k])
        tests.push_back({{"passes", k}, {"exit", *statuses_[k] == kNoExit ? Json() : Json(*statuses_[k])}});
    return {{"input", file_report(options_.input.path)},
            {"pipeline", print_pipeline(pipeline_)},
            {"found", false},
            {"runs", runs_},
            {"tests", std::move(tests)}};
  }

  void report() const {
    if (console_.json()) {
      Json report = report_head();
      report["found"] = is_found();
      Json& passes = report["passes"] = Json::array();
      for (std::size_t k = good_; k < bad_; ++k) {
        const PassCall& call = pipeline_.calls[k];
        passes.push_back(
            {{"position", k + 1}, {"name", call.pass->name}, {"options", print_options(call.options)}});
      }
      report["before"] = file_report(options_.folder + "/before.epw");
      report["after"] = file_report(options_.folder + "/after.epw");
      console_.print(report_text(report));
      return;
    }
    const std::string after = fmt::format("exits 0 before it and {} after it", bad_status());
    if (is_found())
      console_.print(fmt::format("pass {} of {}: {}\n  the command {}, in {}\n", bad_, pipeline_.calls.size(),
                                 print_call(pipeline_.calls[bad_ - 1]), after, counted(runs_, "run")));
    else
      console_.print(
          fmt::format("one of passes {} to {} of {}: {}\n  the command exits 0 before them, {} after them, "
                      "and {} between: it "
                      "cannot tell; {} runs\n",
                      good_ + 1, bad_, pipeline_.calls.size(), print_pipeline(suspects()), bad_status(),
                      kCannotTell, runs_));
    console_.info(
        fmt::format("{0} runs it again: epweave rewrite --reproducer {0} -o OUT\n"
                    "a smaller graph that shows it: epweave reduce {0} -o small.epw -- sh {1}",
                    path_word(options_.folder + "/before.epw"), path_word(options_.folder + "/fails.sh")));
  }

  std::string bad_status() const { return status_text(*statuses_[bad_]); }
  static std::string status_text(int status) {
    return status == kNoExit ? "by a signal" : std::to_string(status);
  }
  std::string place_text(std::size_t k) const {
    if (k == 0) return "the input";
    return fmt::format("after pass {}, {}", k, pipeline_.calls[k - 1].pass->name);
  }

  const BisectCommand& options_;
  Pipeline pipeline_;
  Console& console_;
  GraphCommand command_;
  std::vector<Graph> graphs_;                 // they share a context
  std::vector<std::optional<int>> statuses_;  // of the command, where it ran
  std::exception_ptr thrown_;
  std::size_t good_ = 0, bad_ = 0, runs_ = 0;
};

}  // namespace

int bisect(const BisectCommand& command, Console& console) {
  if (command.command.empty())
    throw UsageError("give the command behind --: epweave bisect G -p PIPELINE -o DIR -- CMD {}");
  if (command.folder.empty())
    throw UsageError("give a folder for the graphs before and after the pass: -o DIR");
  if (command.pipeline.empty() == command.preset.empty())
    throw UsageError("give one of -p PIPELINE and --preset PRESET; `epweave passes` lists both");
  return Bisect(command,
                command.preset.empty() ? parse_pipeline(command.pipeline) : expand_preset(command.preset),
                console)
      .run();
}

}  // namespace epweave::cli
