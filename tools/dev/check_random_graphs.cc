// Random training steps (testing/random_graph.h) through the passes, the verifiers and the replay.
//
//   check_random_graphs --count N [--first SEED] [--run] [--coverage] [--require-coverage]
//   check_random_graphs --print SEED                       the step as text, for `epweave`
//
// For each seed a step is made and must satisfy all invariants. It is chunked into each of several
// numbers of parts and, where it exchanges tokens, scheduled. A rewrite may be refused; else it
// must satisfy all invariants, be proved to compute the same (compare/rewrite/verify_rewrite.h),
// and come out the same twice. With --run, step and rewrite are executed on virtual ranks and
// compared bit by bit, sums of parts within what their summands allow. --coverage lists how often
// each operation, placement, refusal and phase was reached, and what was not and why; with
// --require-coverage it is a failure (random_coverage.h). Exit code 1 if anything fails, naming the
// seed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "analysis/verify.h"
#include "compare/rewrite/verify_halves.h"
#include "compare/rewrite/verify_rewrite.h"
#include "ir/text/text.h"
#include "partition/exact_cut.h"
#include "partition/halves.h"
#include "pipeline/runner.h"
#include "random_coverage.h"
#include "random_pipelines.h"
#include "replay/check/check.h"
#include "replay/kernels/host/kernels.h"
#include "replay/kernels/kernel.h"
#include "testing/random_graph.h"

namespace epweave {
namespace {

struct Settings {
  std::uint64_t count = 100, first = 0;
  bool run = false, coverage = false, require_coverage = false;
  std::optional<std::size_t> layers;  // of each step; none: one or two
  std::string pipeline;
};

struct Totals {
  std::size_t steps = 0, rewrites = 0, scheduled = 0, executed = 0, not_executed = 0, without_bound = 0,
              failures = 0;
};

class RandomStepCheck {
 public:
  explicit RandomStepCheck(const Settings& settings) : settings_(settings) {}

  void check(std::uint64_t seed) {
    seed_ = seed;
    const RandomStep step = make_random_step(seed, settings_.layers);
    ++totals_.steps;
    if (!report(step.graph, verify_graph(step.graph), "the random step")) return;
    count_plan(step);
    if (settings_.pipeline.empty()) check_memory(step);
    for (const auto& [pipeline, is_equal] : pipelines(step)) check_pipeline(step, pipeline, is_equal);
  }

  void check_pipeline(const RandomStep& step, const std::string& pipeline, bool is_equal) {
    try {
      check_rewrite(step, pipeline, is_equal);
    } catch (const PassError& refused) {
      coverage_.count_refusal(refused.id());
    } catch (const std::exception& error) {
      fail(pipeline, error.what());
    }
  }

  // What begins backward at a seed: a memory policy, its copies, and a partition.
  void check_memory(const RandomStep& unseeded) {
    RandomStep step = unseeded;
    step.graph = with_seed(unseeded.graph);
    if (!report(step.graph, verify_graph(step.graph), "the random step with a seed")) return;
    check_pipeline(step, pick_memory_pipeline(step, seed_), true);
    check_pipeline(step, pick_odd_memory_pipeline(seed_), true);
    check_partition(seed_ % 16 == 5 ? unseeded : step);
  }

  // The step, one in three with copies in backward, cut in two by one of the ways, F and B proved
  // and executed behind one another.
  void check_partition(RandomStep step) try {
    const std::string what = fmt::format("partition {}", seed_ % 4);
    if (seed_ % 3 == 0)
      step.graph = run_pipeline(step.graph, parse_pipeline("memory-policy{policy=full},recompute"),
                                {.verify = VerifyPolicy::kOff});
    const Graph graph = seed_ % 4 == 3 ? step.graph : merge_equal_calls(step.graph);
    const Joint joint = read_joint(graph);
    const ValueCosts costs = price_values(graph, joint, Cluster{});
    ExactCuts cuts(graph, joint, costs, {});
    const auto choose = [&] {
      if (seed_ % 16 == 9) return cuts.cut_within(cuts.smallest().totals.bytes - 1).cut;
      if (seed_ % 4 == 2) return cut_as_torch(graph, joint);
      if (seed_ % 4 == 3) return cut_by_tags(graph, joint);
      return seed_ % 4 == 1 ? cuts.smallest().cut : cuts.cut_at_price(Cluster{}.pcie).cut;
    };
    const Halves halves = split_joint(graph, joint, choose());
    ++totals_.rewrites;
    for (const Graph* half : {&halves.forward, &halves.backward}) report(*half, verify_graph(*half), what);
    report(halves.backward, verify_halves(step.graph, halves.forward, halves.backward).violations, what);
    std::vector<Violation> violations;
    const Graph joined = join_halves(step.graph, halves.forward, halves.backward, violations);
    if (settings_.run && !step.has_dropout) execute(step, joined, what);
  } catch (const PassError& refused) {
    coverage_.count_refusal(refused.id());
  } catch (const std::exception& error) {
    fail("partition", error.what());
  }

  const Coverage& coverage() const { return coverage_; }
  const Totals& totals() const { return totals_; }

 private:
  std::vector<RandomPipeline> pipelines(const RandomStep& step) const {
    if (!settings_.pipeline.empty()) return {{settings_.pipeline}};
    std::vector<RandomPipeline> all = list_pipelines(step);
    all.push_back({pick_odd_pipeline(seed_)});
    return all;
  }

  void check_rewrite(const RandomStep& step, const std::string& pipeline, bool is_equal) {
    auto rewrite = [&] {
      return run_pipeline(step.graph, parse_pipeline(pipeline), {.verify = VerifyPolicy::kEach});
    };
    const Graph rewritten = rewrite();
    ++totals_.rewrites;
    if (pipeline.find("overlap-ep") != pipeline.npos) ++totals_.scheduled;
    coverage_.count_schedule(rewritten);
    coverage_.count_tags(rewritten);
    report(rewritten, verify_rewrite(step.graph, rewritten).violations, pipeline);
    if (print_text(rewritten) != print_text(rewrite())) fail(pipeline, "another result the second time");
    if (settings_.run && is_equal && !step.has_dropout) execute(step, rewritten, pipeline);
  }

  void execute(const RandomStep& step, const Graph& rewritten, const std::string& pipeline) {
    static const replay::KernelTable kernels = replay::make_cpu_kernels();
    replay::CheckReport checked;
    try {
      checked = replay::check_graphs(step.graph, rewritten,
                                     {.kernels = kernels, .ranks = step.world, .data = seed_});
    } catch (const PassError& error) {
      if (error.id() != "replay.no-kernel") throw;
      ++totals_.not_executed;
      return;
    }
    ++totals_.executed;
    if (!checked.baseline_is_deterministic)
      fail(pipeline, "the step itself gives other bits the second time");
    using Conclusion = replay::CheckReport::Conclusion;
    const bool has_no_bound =
        checked.conclusion() == Conclusion::kNotVerified && !checked.ops_without_bound.empty();
    if (has_no_bound) ++totals_.without_bound;
    if (checked.is_same() || has_no_bound) return;
    std::string why = "outputs differ";
    if (checked.first)
      why = fmt::format("{}: {}", rewritten.text(rewritten.step().nodes[checked.first->node].name),
                        checked.first->reason);
    fail(pipeline, "executed: " + why);
  }

  // As traced, since normalisation knows views by one name only, and normalised.
  void count_plan(const RandomStep& step) {
    ChunkOptions options{
        .roots = {{"layers.*.moe"}, {"layers.*.feed_forward"}}, .require_exchange = false, .dense = true};
    options.exact_casts = seed_ % 2 == 0;
    if (step.divides_sequence) options.dim = GridDim::kSequence;
    try {
      coverage_.count_plan(step.graph, plan_chunks(step.graph, options));
    } catch (const PassError& refused) {
      coverage_.count_refusal(refused.id());
    }
  }

  bool report(const Graph& graph, const std::vector<Violation>& violations, const std::string& what) {
    for (std::size_t i = 0; i < std::min<std::size_t>(violations.size(), 3); ++i)
      fail(what, print_violation(graph, violations[i]));
    return violations.empty();
  }

  void fail(const std::string& what, const std::string& why) {
    ++totals_.failures;
    fmt::print("seed {}: {}\n  {}\n", seed_, what, why);
  }

  const Settings& settings_;
  std::uint64_t seed_ = 0;
  Coverage coverage_;
  Totals totals_;
};

int run(const Settings& settings) {
  RandomStepCheck checker(settings);
  for (std::uint64_t i = 0; i < settings.count; ++i) checker.check(settings.first + i);
  const Coverage& c = checker.coverage();
  const Totals& t = checker.totals();
  if (settings.coverage) fmt::print("{}", c.print());
  const std::vector<std::string> missing =
      settings.require_coverage ? c.missing() : std::vector<std::string>();
  if (!missing.empty()) fmt::print("not reached: {}\n", fmt::join(missing, ", "));
  fmt::print(
      "{} steps, {} rewrites ({} scheduled, {} executed, of these {} with sums of which no bound is known, "
      "{} without a kernel), {} refused, {} operations divided, {} failures\n",
      t.steps, t.rewrites, t.scheduled, t.executed, t.without_bound, t.not_executed, c.refused(),
      c.operations(), t.failures);
  return t.failures == 0 && missing.empty() ? 0 : 1;
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
  app.add_flag("--require-coverage", settings.require_coverage,
               "Fail if an operation, placement, refusal or phase that steps can reach was not reached");
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
