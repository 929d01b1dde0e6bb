// Wrong rewrites (testing/wrong_rewrites.h) before `verify A B`: whatever it accepts is executed
// beside the original.
//
//   check_wrong_rewrites --count N [--first SEED] [--mutants M]      of random steps and what the passes make of them
//   check_wrong_rewrites --graph FILE --pipeline P [--mutants M]     of a real graph and one rewrite
//   check_wrong_rewrites .. --halves                                 of steps that are cut in two
//
// Of random steps one in seven is bucketed, one has a memory policy, and one is cut in two: of
// these forward, backward, or what both are behind one another is changed.
//
// Prints how many mutants were refused, and by which violation; how many accepted ones are
// harmless; and each finding: an accepted mutant whose outputs are not the original's. Findings are
// made small and saved as text with --save. Exit code 1 if there is one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <string>

#include "compare/rewrite/verify_halves.h"
#include "fate_tally.h"
#include "io/file.h"
#include "mutant_judge.h"
#include "pair_reducer.h"
#include "partition/exact_cut.h"
#include "partition/halves.h"
#include "pipeline/runner.h"
#include "random_pipelines.h"
#include "replay/kernels/host/kernels.h"
#include "testing/half_changes.h"
#include "testing/wrong_rewrites.h"

namespace epweave {
namespace {

struct Settings {
  std::uint64_t count = 20, first = 0, mutants = 100;
  std::string graph, pipeline, save;
  double seconds = 0;  // no further mutants behind; 0: all
  bool prints_accepted = false;
  bool keeps_original = false;
  bool cuts_in_two = false;
};

class WrongRewriteCheck {
 public:
  explicit WrongRewriteCheck(const Settings& settings) : settings_(settings) {}

  void check_random(std::uint64_t seed) {
    const RandomStep step = make_random_step(seed);
    if (step.has_dropout) return;
    const std::uint64_t own = seed / kKinds;
    if (settings_.cuts_in_two || seed % kKinds == 2) return check_halves(step, seed);
    if (seed % kKinds == 0)
      if (const auto sharded = shard_parameters(step, own / 4))
        return check_step(*sharded, pick_bucket_pipeline(step, own), seed);
    if (seed % kKinds == 1) {
      RandomStep seeded = step;
      seeded.graph = with_seed(step.graph);
      return check_step(seeded, pick_memory_pipeline(step, own), seed);
    }
    const std::vector<RandomPipeline> pipelines = list_pipelines(step);
    const RandomPipeline& chosen = pipelines[seed % pipelines.size()];
    if (chosen.is_equal) check_step(step, chosen.pipeline, seed);
  }

  void check_file() {
    const Graph a = read_graph(settings_.graph);
    const Graph b = settings_.pipeline.empty() ? a : rewrite(a, settings_.pipeline);
    JudgeSetup setup{.kernels = kernels(), .deadline = std::chrono::milliseconds(120'000)};
    setup.data = {1};
    if (settings_.cuts_in_two) return check_halves_of(b, setup, {settings_.first, "halves"});
    check_pair(a, b, setup, {settings_.first, std::filesystem::path(settings_.graph).stem().string()});
  }

  bool is_over() const { return fates_.is_over(settings_.seconds); }
  std::size_t findings() const { return fates_.findings(); }

  void print() const {
    fates_.print(fmt::format("{} pairs, {} mutants", pairs_, mutants_));
    print_counts("refused by verify A B", refused_);
    print_counts("accepted, not executable", not_executable_);
    print_counts("made, by kind", made_);
    print_counts("accepted, by kind", accepted_);
    print_counts("accepted though wrong", wrong_);
  }

 private:
  static constexpr std::uint64_t kKinds = 7;  // one step of so many is bucketed, ..

  void check_step(const RandomStep& step, const std::string& pipeline, std::uint64_t seed) {
    try {
      const Graph b = rewrite(step.graph, pipeline);
      check_pair(step.graph, b, {.kernels = kernels(), .ranks = step.world},
                 {seed, fmt::format("seed_{}", seed)});
    } catch (const PassError&) {  // refused
    }
  }

  void check_halves(const RandomStep& step, std::uint64_t seed) {
    try {
      check_halves_of(with_seed(step.graph), {.kernels = kernels(), .ranks = step.world},
                      {seed, fmt::format("seed_{}", seed)});
    } catch (const PassError&) {  // refused
    }
  }

  static const replay::KernelTable& kernels() {
    static const replay::KernelTable table = replay::make_cpu_kernels();
    return table;
  }
  static Graph rewrite(const Graph& graph, const std::string& pipeline) {
    const bool is_preset = pipeline.starts_with("ep-overlap");
    return run_pipeline(graph, is_preset ? expand_preset(pipeline) : parse_pipeline(pipeline),
                        {.verify = VerifyPolicy::kOff});
  }

  struct Source {
    std::uint64_t seed;
    std::string name;
  };
  void report_right(const Graph& a, const Graph& b, const Judgement& right, const std::string& name) {
    fmt::print("{}: the rewrite itself: {}: {}\n", name, name_of(right.fate), right.why);
    for (const Violation& violation : verify_rewrite(a, b).violations)
      fmt::print("  {}\n", print_violation(b, violation));
    if (right.fate != Fate::kNotExecutable && right.fate != Fate::kNoStep) fates_.add(Fate::kWrong);
  }

  void check_pair(const Graph& a, const Graph& b, const JudgeSetup& setup, const Source& source) {
    const std::string& name = source.name;
    ++pairs_;
    MutantJudge judge(setup, a, b);
    const Judgement right = judge.judge_right();
    if (right.fate != Fate::kEqual) return report_right(a, b, right, name);
    WrongRewrites wrong(a, b, source.seed);
    for_each_mutant(
        name, [&] { return wrong.make(); },
        [&](const Mutant& mutant, const std::string& own) { judge_mutant(mutant, judge, setup, own); });
  }

  // Calls judge(mutant, its name) for as many as are asked for.
  template <class Make, class Judge>
  void for_each_mutant(const std::string& name, const Make& make, const Judge& judge) {
    for (std::uint64_t i = 0, tries = 0;
         i < settings_.mutants && tries < 20 * settings_.mutants && !is_over(); ++tries) {
      const std::optional<Mutant> mutant = make();
      if (!mutant || (settings_.keeps_original && mutant->changes_a)) continue;
      ++i;
      ++mutants_;
      ++made_[mutant->kind];
      judge(*mutant, fmt::format("{}_{}", name, i));
    }
  }

  // Of the step, its equal calls merged or not, cut by one of the ways.
  static Halves cut_in_two(const Graph& step, std::uint64_t seed) {
    const Graph graph = seed % 2 == 0 ? merge_equal_calls(step) : step;
    const Joint joint = read_joint(graph);
    if (seed / 2 % 3 == 2) return split_joint(graph, joint, cut_by_tags(graph, joint));
    const ValueCosts costs = price_values(graph, joint, Cluster{});
    ExactCuts cuts(graph, joint, costs, {});
    const bool is_smallest = seed / 2 % 3 == 0;
    return split_joint(graph, joint,
                       is_smallest ? cuts.smallest().cut : cuts.cut_at_price(Cluster{}.pcie).cut);
  }

  // One half is changed, or what both are behind one another.
  void check_halves_of(const Graph& step, const JudgeSetup& setup, const Source& source) {
    const Halves halves = cut_in_two(step, source.seed);
    std::vector<Violation> violations;
    const Graph joined = join_halves(step, halves.forward, halves.backward, violations);
    if (source.seed / 6 % 3 == 0) return check_pair(step, joined, setup, source);
    ++pairs_;
    MutantJudge judge(setup, step, joined);
    const Judgement right = judge.judge_right();
    if (right.fate != Fate::kEqual) return report_right(step, joined, right, source.name);
    Dice dice(source.seed);
    WrongRewrites of_forward(step, halves.forward, source.seed),
        of_backward(step, halves.backward, source.seed);
    bool is_forward = false;  // what the last mutant is a half of
    const auto make = [&] {
      is_forward = dice.one_in(2);
      const bool changes_interface = dice.one_in(4);
      std::optional<Mutant> mutant;
      if (!changes_interface)
        mutant = (is_forward ? of_forward : of_backward).make();
      else if (auto change = change_interface(is_forward ? halves.forward : halves.backward, dice))
        mutant = Mutant{step, std::move(change->graph), change->kind, change->place};
      if (mutant) mutant->kind += is_forward ? ", of forward" : ", of backward";
      return mutant;
    };
    for_each_mutant(source.name, make, [&](const Mutant& mutant, const std::string& name) {
      judge_half(mutant, {is_forward ? mutant.b : halves.forward, is_forward ? halves.backward : mutant.b},
                 judge, name);
    });
  }

  void judge_half(const Mutant& mutant, const MutantJudge::HalvesOfStep& halves, MutantJudge& judge,
                  const std::string& name) {
    const auto judge_it = [&] { return judge.judge_halves(mutant.a, halves, mutant.changes_a); };
    if (!is_finding(mutant, judge_it, name) || settings_.save.empty()) return;
    save_pair({mutant.a, halves.forward}, settings_.save, name + "_forward");
    save_pair({mutant.a, halves.backward}, settings_.save, name + "_backward");
  }

  void judge_mutant(const Mutant& mutant, MutantJudge& judge, const JudgeSetup& setup,
                    const std::string& name) {
    Fate fate = Fate::kWrong;  // also of what throws
    const auto judge_it = [&] {
      const Judgement judgement = judge.judge(mutant.a, mutant.b, mutant.changes_a);
      fate = judgement.fate;
      return judgement;
    };
    if (is_finding(mutant, judge_it, name) && !settings_.save.empty()) save(mutant, setup, {fate, name});
  }

  // Counts what becomes of the mutant.
  template <class Judge>
  bool is_finding(const Mutant& mutant, const Judge& judge, const std::string& name) {
    Judgement judgement;
    if (settings_.prints_accepted) {
      fmt::print("{}: {}: {}\n", name, mutant.kind, mutant.place);
      std::fflush(stdout);
    }
    try {
      judgement = judge();
    } catch (const std::exception& error) {
      judgement = {Fate::kWrong, fmt::format("thrown: {}", error.what())};
    }
    fates_.add(judgement.fate);
    if (judgement.fate == Fate::kRefused) ++refused_[judgement.why];
    if (judgement.fate == Fate::kNotExecutable) ++not_executable_[mutant.kind];
    if (judgement.fate > Fate::kRefused) {
      ++accepted_[mutant.kind];
      if (settings_.prints_accepted)
        fmt::print("{}: {}: {}: {}: {}\n", name, mutant.kind, mutant.place, name_of(judgement.fate),
                   judgement.why);
    }
    if (!FateTally::is_finding(judgement.fate)) return false;
    ++wrong_[mutant.kind];
    fmt::print("{}: {}: {}\n  {}\n", name, mutant.kind, mutant.place, judgement.why);
    std::fflush(stdout);
    return true;
  }

  struct Finding {
    Fate fate;
    const std::string& name;
  };
  void save(const Mutant& mutant, const JudgeSetup& setup, const Finding& finding) const {
    const auto& [fate, name] = finding;
    const auto holds = [&, fate = fate](const GraphPair& pair) {
      try {
        return MutantJudge(setup, mutant.a, mutant.b).judge(pair.a, pair.b, true).fate == fate;
      } catch (const std::exception&) {
        return false;
      }
    };
    save_pair(reduce_pair({mutant.a, mutant.b}, holds), settings_.save, name);
  }

  const Settings& settings_;
  std::size_t pairs_ = 0, mutants_ = 0;
  FateTally fates_;
  Counts refused_, not_executable_, made_, accepted_, wrong_;
};

int run(const Settings& settings) {
  if (!settings.save.empty()) std::filesystem::create_directories(settings.save);
  WrongRewriteCheck check(settings);
  if (!settings.graph.empty()) {
    check.check_file();
  } else {
    for (std::uint64_t i = 0; i < settings.count && !check.is_over(); ++i)
      check.check_random(settings.first + i);
  }
  check.print();
  return check.findings() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace epweave

int main(int argc, char** argv) {
  epweave::Settings settings;
  CLI::App app("Wrong rewrites before verify A B, executed where it accepts one");
  app.add_option("--count", settings.count, "Random steps")->type_name("N")->capture_default_str();
  app.add_option("--first", settings.first, "Seed of the first step")
      ->type_name("SEED")
      ->capture_default_str();
  app.add_option("--mutants", settings.mutants, "Of each rewrite")->type_name("N")->capture_default_str();
  app.add_option("--graph", settings.graph, "A graph to rewrite instead of random steps")->type_name("FILE");
  app.add_option("--pipeline", settings.pipeline, "How to rewrite it");
  app.add_option("--save", settings.save, "Save findings, made small, in this folder")->type_name("DIR");
  app.add_option("--seconds", settings.seconds, "Make no further mutants behind this time");
  app.add_flag("--keep-original", settings.keeps_original,
               "Change the rewrite alone, never its original with it");
  app.add_flag("--halves", settings.cuts_in_two, "Cut the steps in two, and change a half");
  app.add_flag("--print-accepted", settings.prints_accepted, "Print each mutant that verify A B accepts");
  try {
    app.parse(argc, argv);
    return epweave::run(settings);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
