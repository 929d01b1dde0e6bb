// Random training steps (testing/random_graph.h) through the passes, the verifiers and the replay.
//
//   check_random_graphs --count N [--first SEED] [--run] [--coverage]
//   check_random_graphs --print SEED                       the step as text, for `epweave`
//
// For each seed a step is made and must satisfy all invariants. It is chunked into each of several numbers of
// parts and, where it exchanges tokens, scheduled. A rewrite may be refused; else it must satisfy all
// invariants, be proved to compute the same (compare/verify_rewrite.h), and come out the same twice. With
// --run, step and rewrite are executed on virtual ranks and compared bit by bit, sums of parts within what their
// summands allow. --coverage lists how often each operation and each placement was divided and each refusal occurred.
// Exit code 1 if anything fails, naming the seed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/verify_rewrite.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/runner.h"
#include "replay/check.h"
#include "replay/cpu/kernels.h"
#include "replay/kernel.h"
#include "testing/random_graph.h"

namespace epweave {
namespace {

struct Settings {
  std::uint64_t count = 100, first = 0;
  bool run = false, coverage = false;
  std::optional<std::size_t> layers;  // of each step; none: one or two
  std::string pipeline;
};

struct Coverage {
  std::map<std::string, std::size_t> divided;   // by target
  std::map<std::string, std::size_t> roles;     // of what the passes made, by provenance
  std::map<std::string, std::size_t> refusals;  // by name
  std::size_t steps = 0, rewrites = 0, scheduled = 0, executed = 0, not_executed = 0, failures = 0;
};

class Checker {
 public:
  explicit Checker(const Settings& settings) : settings_(settings) {}

  void check(std::uint64_t seed) {
    seed_ = seed;
    const RandomStep step = make_random_step(seed, settings_.layers);
    ++coverage_.steps;
    if (!report(step.graph, verify_graph(step.graph), "the random step")) return;
    for (const std::string& pipeline : pipelines(step)) try {
        check_rewrite(step, pipeline);
      } catch (const PassError& refused) {
        ++coverage_.refusals[std::string(refused.id())];
      } catch (const std::exception& error) {
        fail(pipeline, error.what());
      }
  }

  const Coverage& coverage() const { return coverage_; }

 private:
  std::vector<std::string> pipelines(const RandomStep& step) const {
    if (!settings_.pipeline.empty()) return {settings_.pipeline};
    const bool moe = step.has_exchange;
    const auto chunk = [&](std::string_view division) {
      return fmt::format(
          "dce,canonicalize,chunk{{roots=[layers.*.moe,layers.*.feed_forward],require-exchange={},{}}}", moe,
          division);
    };
    const std::string schedule = moe ? ",isolate-ep-pg,dce,overlap-ep,concretize" : ",concretize";
    // 48 tokens: equal parts, uneven ones, and sizes as given; gradients and joins in both orders.
    return {chunk("parts=2") + schedule, chunk("parts=3,grad-accumulation=eager") + schedule,
            chunk("parts=5,cast=exact") + schedule,
            chunk("sizes=[7,1,40],join=regions") + (moe ? ",overlap-ep{movement=minimal}" : "")};
  }

  void check_rewrite(const RandomStep& step, const std::string& pipeline) {
    auto rewrite = [&] {
      return run_pipeline(step.graph, parse_pipeline(pipeline), {.verify = VerifyPolicy::kEach});
    };
    const Graph rewritten = rewrite();
    ++coverage_.rewrites;
    if (pipeline.find("overlap-ep") != pipeline.npos) ++coverage_.scheduled;
    count(rewritten);
    report(rewritten, verify_rewrite(step.graph, rewritten).violations, pipeline);
    if (print_text(rewritten) != print_text(rewrite())) fail(pipeline, "another result the second time");
    if (settings_.run) execute(step, rewritten, pipeline);
  }

  void execute(const RandomStep& step, const Graph& rewritten, const std::string& pipeline) {
    static const replay::KernelTable kernels = replay::make_cpu_kernels();
    replay::CheckReport checked;
    try {
      checked = replay::check_graphs(step.graph, rewritten,
                                     {.kernels = kernels, .ranks = step.world, .data = seed_});
    } catch (const PassError& error) {
      if (error.id() != "replay.no-kernel") throw;
      ++coverage_.not_executed;
      return;
    }
    ++coverage_.executed;
    if (!checked.baseline_is_deterministic)
      fail(pipeline, "the step itself gives other bits the second time");
    if (checked.is_same()) return;
    std::string why = "outputs differ";
    if (checked.first)
      why = fmt::format("{}: {}", rewritten.text(rewritten.step().nodes[checked.first->node].name),
                        checked.first->reason);
    fail(pipeline, "executed: " + why);
  }

  void count(const Graph& graph) {
    for (NodeId id : graph.step().order) {
      const Node& node = graph.step().nodes[id];
      for (const Provenance& record : node.provenance) {
        ++coverage_.roles[std::string(name_of(record.role))];
        if (record.role == ProvenanceRole::kBody) ++coverage_.divided[std::string(graph.text(node.target))];
      }
    }
  }

  bool report(const Graph& graph, const std::vector<Violation>& violations, const std::string& what) {
    for (std::size_t i = 0; i < std::min<std::size_t>(violations.size(), 3); ++i)
      fail(what, print_violation(graph, violations[i]));
    return violations.empty();
  }

  void fail(const std::string& what, const std::string& why) {
    ++coverage_.failures;
    fmt::print("seed {}: {}\n  {}\n", seed_, what, why);
  }

  const Settings& settings_;
  std::uint64_t seed_ = 0;
  Coverage coverage_;
};

void print_counts(std::string_view title, const std::map<std::string, std::size_t>& counts) {
  fmt::print("{}\n", title);
  for (const auto& [name, count] : counts) fmt::print("  {:8} {}\n", count, name);
}

int run(const Settings& settings) {
  Checker checker(settings);
  for (std::uint64_t i = 0; i < settings.count; ++i) checker.check(settings.first + i);
  const Coverage& c = checker.coverage();
  if (settings.coverage) {
    print_counts("divided", c.divided);
    print_counts("records", c.roles);
    print_counts("refused", c.refusals);
  }
  std::size_t refused = 0;
  for (const auto& [name, count] : c.refusals) refused += count;
  fmt::print(
      "{} steps, {} rewrites ({} scheduled, {} executed), {} refused, {} operations divided, {} failures\n",
      c.steps, c.rewrites, c.scheduled, c.executed, refused, c.divided.size(), c.failures);
  return c.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace epweave

int main(int argc, char** argv) {
  using epweave::print_text, epweave::make_random_step;
  epweave::Settings settings;
  std::optional<std::uint64_t> printed;
  CLI::App app("Random training steps through the passes, the verifiers and the replay");
  app.add_option("--count", settings.count, "Steps to check")->type_name("N")->capture_default_str();
  app.add_option("--first", settings.first, "Seed of the first step")
      ->type_name("SEED")
      ->capture_default_str();
  app.add_option("--layers", settings.layers, "Layers of each step (default: one or two)")->type_name("N");
  app.add_option("--pipeline", settings.pipeline, "Run this pipeline instead of the built-in ones");
  app.add_flag("--run", settings.run, "Execute step and rewrite and compare the bits");
  app.add_flag("--coverage", settings.coverage, "List what was divided and refused");
  app.add_option("--print", printed, "Print one step as text and stop")->type_name("SEED");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!printed) return epweave::run(settings);
  fmt::print("{}", print_text(make_random_step(*printed, settings.layers).graph));
  return 0;
}
