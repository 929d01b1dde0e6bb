// Random small programs on rows of tokens, divided into parts as somebody might write it
// (testing/row_programs.h), before `verify A B`: whatever it accepts is executed beside the
// original.
//
//   check_row_programs --count N [--first SEED]
//
// Prints how many were refused, and by which violation, and each finding: a program that is
// accepted and computes something else, as it is or with more rows. Findings are made small and
// saved as text with --save. Exit code 1 if there is one. Programs of which B alone stops (a
// position is out of range in a value that nothing reads) are printed, too.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <string>

#include "compare/rewrite/verify_rewrite.h"
#include "fate_tally.h"
#include "ir/text/text.h"
#include "mutant_judge.h"
#include "pair_reducer.h"
#include "replay/inputs/recipe.h"
#include "replay/kernels/host/kernels.h"
#include "testing/row_programs.h"

namespace epweave {
namespace {

struct Settings {
  std::uint64_t count = 1000, first = 0;
  std::string save;
  double seconds = 0;  // no further programs behind; 0: all
  bool prints_accepted = false, prints_made = false;
};

constexpr std::string_view kInputs = R"({"inputs": [
  {"name": "ids", "make": "integers", "from": 0, "below": 8},
  {"name": "tokens", "make": "integers", "from": 0, "below": 8},
  {"dtype": "floating", "make": "uniform"}]})";

// With so many times the rows that it was traced with.
Graph scale_rows(Graph graph, std::int64_t times) {
  for (Symbol& symbol : graph.symbols)
    if (symbol.hint) *symbol.hint *= times;
  return graph;
}

class RowProgramCheck {
 public:
  explicit RowProgramCheck(const Settings& settings) : settings_(settings) {}

  void check(std::uint64_t seed) {
    const std::optional<RowProgram> program = make_row_program(seed);
    if (!program) return;
    ++programs_;
    if (settings_.prints_made)
      fmt::print("seed {}\n{}\n{}\n", seed, print_text(program->a), print_text(program->b));
    const Judgement judgement = judge({program->a, program->b});
    fates_.add(judgement.fate);
    if (judgement.fate == Fate::kRefused || judgement.fate == Fate::kRefusedAlone) ++refused_[judgement.why];
    if (settings_.prints_accepted && judgement.fate > Fate::kRefused)
      fmt::print("seed {}: {}: {}\n", seed, name_of(judgement.fate), judgement.why);
    if (judgement.fate <= Fate::kAssumed) return;
    fmt::print("seed {}: {}: {}\n", seed, name_of(judgement.fate), judgement.why);
    std::fflush(stdout);
    if (FateTally::is_finding(judgement.fate) && !settings_.save.empty())
      save(seed, {program->a, program->b}, judgement.fate);
  }

  bool is_over() const { return fates_.is_over(settings_.seconds); }
  std::size_t findings() const { return fates_.findings(); }

  void print() const {
    fates_.print(fmt::format("{} programs", programs_));
    print_counts("refused", refused_);
  }

 private:
  // What is accepted is executed with more rows, too: a proof is of each number of them.
  Judgement judge(const GraphPair& pair) const {
    Judgement judgement = judge_once(pair);
    if (judgement.fate != Fate::kEqual) return judgement;
    const Judgement more = judge_once({scale_rows(pair.a, 2), scale_rows(pair.b, 2)});
    return more.fate > Fate::kAssumed ? more : judgement;
  }
  Judgement judge_once(const GraphPair& pair) const {
    try {
      // The original is its own rewrite and takes nothing for granted.
      return MutantJudge(setup_, pair.a, pair.a).judge(pair.a, pair.b, true);
    } catch (const std::exception& error) {
      return {Fate::kWrong, fmt::format("thrown: {}", error.what())};
    }
  }

  void save(std::uint64_t seed, const GraphPair& pair, Fate fate) const {
    const auto holds = [&](const GraphPair& smaller) { return judge(smaller).fate == fate; };
    save_pair(reduce_pair(pair, holds), settings_.save, fmt::format("seed_{}", seed));
  }

  const Settings& settings_;
  replay::KernelTable kernels_ = replay::make_cpu_kernels();
  replay::Recipe recipe_ = replay::parse_recipe(kInputs, "row programs");
  JudgeSetup setup_{.kernels = kernels_, .recipe = &recipe_};
  std::size_t programs_ = 0;
  FateTally fates_;
  Counts refused_;
};

int run(const Settings& settings) {
  if (!settings.save.empty()) std::filesystem::create_directories(settings.save);
  RowProgramCheck check(settings);
  for (std::uint64_t i = 0; i < settings.count && !check.is_over(); ++i) check.check(settings.first + i);
  check.print();
  return check.findings() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace epweave

int main(int argc, char** argv) {
  epweave::Settings settings;
  CLI::App app(
      "Random programs on rows, divided right or wrong, before verify A B, executed where it accepts one");
  app.add_option("--count", settings.count, "Seeds")->type_name("N")->capture_default_str();
  app.add_option("--first", settings.first, "The first seed")->type_name("SEED")->capture_default_str();
  app.add_option("--save", settings.save, "Save findings, made small, in this folder")->type_name("DIR");
  app.add_option("--seconds", settings.seconds, "Make no further programs behind this time");
  app.add_flag("--print-accepted", settings.prints_accepted, "Print what becomes of each accepted program");
  app.add_flag("--print-made", settings.prints_made, "Print each program");
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
