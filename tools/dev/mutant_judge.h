// What becomes of a mutant (testing/wrong_rewrites.h): who refuses it, or else what it computes
// when it is executed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compare/rewrite/verify_rewrite.h"
#include "replay/inputs/inputs.h"
#include "replay/run/executor.h"

namespace epweave {

enum class Fate : std::uint8_t {
  kNoStep,         // A is no legal step any more, or cannot be executed
  kRefusedAlone,   // by `verify B`
  kRefused,        // by `verify A B`
  kEqual,          // accepted; the outputs are A's, as far as their numerics classes say
  kAssumed,        // accepted under an assumption that the right rewrite does not need, and differs
  kNotExecutable,  // accepted; B cannot be executed where A can
  kCrashed,        // accepted; executing one of the two ends the process
  kWrong,          // accepted, and outputs differ
};
inline constexpr std::size_t kFates = 8;
std::string_view name_of(Fate fate);

struct Judgement {
  Fate fate = Fate::kEqual;
  std::string why;  // the first violation's name; what differs; what cannot be executed
};

struct JudgeSetup {
  const replay::KernelTable& kernels;
  std::uint32_t ranks = 0;  // 0: as the graphs say
  std::chrono::milliseconds deadline{10'000};
  const replay::Recipe* recipe = nullptr;    // of the inputs; null: the one that ships
  std::vector<std::uint64_t> data = {1, 2};  // random inputs: equal by luck is not equal twice
};

// Of one rank: what the step returned, or what it left in an input.
struct StepResult {
  std::string name;
  replay::Tensor tensor;
  std::size_t place = 0;  // among the outputs, or among the inputs
  bool is_input = false;
};

class MutantJudge {
 public:
  // A right rewrite of A: what its proof assumes, others may assume.
  MutantJudge(const JudgeSetup& setup, const Graph& a, const Graph& b);
  ~MutantJudge();

  // The right rewrite. Sums of mutants that have its bits need no bounds then.
  Judgement judge_right();
  // `changes_a`: the first graph is not the A that this judge was made for.
  Judgement judge(const Graph& a, const Graph& b, bool changes_a);
  // Of the halves of a step, which are executed one behind the other.
  struct HalvesOfStep {
    const Graph &forward, &backward;
  };
  Judgement judge_halves(const Graph& a, const HalvesOfStep& halves, bool changes_a);

 private:
  struct Runs;
  Judgement verify(const Graph& a, const Graph& b, bool changes_a);
  Judgement execute_apart(const Graph& a, const Graph& b, bool changes_a);
  Judgement execute(const Graph& a, const Graph& b, const Runs& runs_a) const;
  std::unique_ptr<Runs> run(const Graph& graph, const Graph* original) const;
  bool is_right_sum(const StepResult& in_a, const StepResult& in_b, std::size_t data, std::size_t rank) const;
  std::string judge_sums(const Graph& a, const Graph& b, std::uint64_t data) const;

  const JudgeSetup& setup_;
  const Graph &a_, &b_;
  std::vector<std::string> assumptions_;
  RewriteReport report_;                   // of the mutant
  std::unique_ptr<Runs> runs_a_, runs_b_;  // of the step and its right rewrite
};

}  // namespace epweave
