#include "mutant_judge.h"

#include <fmt/format.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>

#include "analysis/returned_values.h"
#include "analysis/verify.h"
#include "compare/rewrite/verify_halves.h"
#include "replay/bounds/error_bounds.h"
#include "replay/check/check.h"
#include "replay/values/compare.h"

namespace epweave {

namespace {

std::vector<StepResult> collect_results(const Graph& graph, const replay::RankResult& run,
                                        const replay::RankInputs& inputs) {
  std::vector<StepResult> results;
  for (std::size_t i = 0; i < run.outputs.size(); ++i)
    if (run.outputs[i].is_tensor())
      results.push_back({fmt::format("output {}", i), run.outputs[i].tensor(), i, false});
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].is_tensor())
      results.push_back(
          {fmt::format("input {}", i < graph.inputs.size() ? graph.text(graph.inputs[i].name) : ""),
           inputs[i].tensor(), i, true});
  return results;
}

// Places of a tensor's elements in its memory, in bytes.
std::vector<std::int64_t> list_places(const replay::Tensor& tensor) {
  std::vector<std::int64_t> places{tensor.offset};
  for (std::size_t d = 0; d < tensor.rank(); ++d) {
    std::vector<std::int64_t> all;
    for (std::int64_t place : places)
      for (std::int64_t i = 0; i < tensor.sizes[d]; ++i) all.push_back(place + i * tensor.strides[d]);
    places = std::move(all);
  }
  for (std::int64_t& place : places) place *= static_cast<std::int64_t>(tensor.element_bytes());
  std::ranges::sort(places);
  return places;
}

// Whether a write to the one changes the other. Elements of different sizes count as those bytes
// that they begin with.
bool share_elements(const StepResult& x, const StepResult& y) {
  if (x.tensor.storage != y.tensor.storage) return false;
  std::vector<std::int64_t> both;
  std::ranges::set_intersection(list_places(x.tensor), list_places(y.tensor), std::back_inserter(both));
  return !both.empty();
}

// Two results of a rank, or a result and an input, that share elements in the second graph alone;
// "": there are none. Who shares them in the first alone is what an assumption may be about.
std::string find_new_sharing(const std::vector<StepResult>& in_a, const std::vector<StepResult>& in_b) {
  for (std::size_t i = 0; i < in_b.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const bool are_inputs = in_b[i].is_input && in_b[j].is_input;
      if (!are_inputs && share_elements(in_b[i], in_b[j]) && !share_elements(in_a[i], in_a[j]))
        return fmt::format("{} and {} share elements", in_b[j].name, in_b[i].name);
    }
  return "";
}

// A sum of which no bound is known may be off by so much of its norm, and by as many roundings to
// the coarsest dtype that the step computes in.
constexpr double kUnboundedError = 1e-3;
constexpr double kRoundings = 8;

double error_without_bound(const Graph& graph) {
  double coarsest = 0;
  for (const Node& node : graph.step().nodes) {
    const TensorType* type = tensor_of(*graph.context, node.type);
    if (type != nullptr) coarsest = std::max(coarsest, replay::unit_roundoff(type->dtype));
  }
  return std::max(kUnboundedError, kRoundings * coarsest);
}

using replay::Rank;

// What the report says of the bits of each result.
class ResultClasses {
 public:
  ResultClasses(const Graph& b, const RewriteReport& report) {
    const Context& context = *b.context;
    std::size_t next = 0;
    for (const Arg& item : list_returned(b)) {
      Numerics& numerics = outputs_.emplace_back(Numerics::kReorder);
      context.args.for_each_node(item, [&](NodeId) {
        if (next < report.outputs.size()) numerics = std::max(numerics, report.outputs[next++].numerics);
      });
    }
    std::map<std::string_view, Numerics> updates;
    for (; next < report.outputs.size(); ++next)
      updates[report.outputs[next].what] = report.outputs[next].numerics;
    for (const InputRole& input : b.inputs) {
      const auto found =
          updates.find(fmt::format("update of {}", b.text(input.fqn ? input.fqn : input.name)));
      inputs_.push_back(found == updates.end() ? Numerics::kReorder : found->second);
    }
  }
  Numerics of(const StepResult& result) const {
    const std::vector<Numerics>& list = result.is_input ? inputs_ : outputs_;
    return result.place < list.size() ? list[result.place] : Numerics::kReorder;
  }

 private:
  std::vector<Numerics> outputs_, inputs_;
};

// In a process of its own: a mutant can be what no kernel was ever given.
template <class Judge>
Judgement judge_apart(const Judge& judge) {
  std::array<int, 2> ends{};
  EPWEAVE_CHECK(pipe(ends.data()) == 0);
  const pid_t child = fork();
  EPWEAVE_CHECK(child >= 0);
  if (child == 0) {
    close(ends[0]);
    Judgement judgement;
    try {
      judgement = judge();
    } catch (const std::exception& error) {
      judgement = {Fate::kWrong, fmt::format("thrown: {}", error.what())};
    }
    const std::string text = static_cast<char>(judgement.fate) + judgement.why;
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 512> buffer{};
  for (ssize_t n = 0; (n = read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || text.empty())
    return {Fate::kCrashed, fmt::format("signal {}", WIFSIGNALED(status) ? WTERMSIG(status) : 0)};
  return {static_cast<Fate>(text.front()), text.substr(1)};
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, std::min<std::size_t>(text.find('\n'), 200)));
}

}  // namespace

std::string_view name_of(Fate fate) {
  static constexpr std::array<std::string_view, kFates> kNames = {"no step",
                                                                  "refused by verify B",
                                                                  "refused by verify A B",
                                                                  "equal",
                                                                  "assumed",
                                                                  "not executable",
                                                                  "crashed",
                                                                  "wrong"};
  return kNames[static_cast<std::size_t>(fate)];
}

// By inputs, by rank. Tensors live as long as their memory.
struct MutantJudge::Runs {
  std::vector<replay::RunResult> runs;
  std::vector<std::vector<replay::RankInputs>> inputs;
  std::vector<std::vector<std::vector<StepResult>>> results;
  std::string problem;  // why there are none
};

MutantJudge::MutantJudge(const JudgeSetup& setup, const Graph& a, const Graph& b)
    : setup_(setup), a_(a), b_(b), assumptions_(verify_rewrite(a, b).assumptions) {
  std::ranges::sort(assumptions_);
}
MutantJudge::~MutantJudge() = default;

std::unique_ptr<MutantJudge::Runs> MutantJudge::run(const Graph& graph, const Graph* original) const {
  auto all = std::make_unique<Runs>();
  try {
    const replay::World world = replay::derive_world(graph, setup_.ranks);
    for (std::uint64_t seed : setup_.data) {
      replay::InputData data = seed;
      data.original = original;
      data.recipe = setup_.recipe;
      replay::RunOptions options;
      options.deadline = setup_.deadline;
      options.types = replay::RecordedTypes::kReport;
      options.fill = replay::HostMemory::Fill::kPoison;
      all->inputs.push_back(replay::make_inputs(graph, world, setup_.kernels, data));
      all->runs.push_back(replay::run_ranks(graph, world, setup_.kernels, all->inputs.back(), options));
      std::vector<std::vector<StepResult>>& results = all->results.emplace_back();
      for (Rank rank = 0; rank < world.size; ++rank)
        results.push_back(collect_results(graph, all->runs.back().ranks[rank], all->inputs.back()[rank]));
    }
  } catch (const std::exception& error) {
    all->problem = first_line(error.what());
  }
  return all;
}

Judgement MutantJudge::judge_right() {
  const Judgement judgement = judge(a_, b_, false);
  if (judgement.fate == Fate::kEqual) runs_b_ = run(b_, &a_);
  return judgement;
}

Judgement MutantJudge::judge(const Graph& a, const Graph& b, bool changes_a) {
  const Judgement verified = verify(a, b, changes_a);
  return verified.fate == Fate::kEqual ? execute_apart(a, b, changes_a) : verified;
}

Judgement MutantJudge::judge_halves(const Graph& a, const HalvesOfStep& halves, bool changes_a) {
  if (changes_a)
    if (const auto own = verify_graph(a); !own.empty()) return {Fate::kNoStep, own.front().invariant};
  for (const Graph* half : {&halves.forward, &halves.backward})
    if (const auto own = verify_graph(*half); !own.empty())
      return {Fate::kRefusedAlone, own.front().invariant};
  report_ = verify_halves(a, halves.forward, halves.backward);
  if (!report_.violations.empty()) return {Fate::kRefused, report_.violations.front().invariant};
  std::vector<Violation> violations;
  return execute_apart(a, join_halves(a, halves.forward, halves.backward, violations), changes_a);
}

Judgement MutantJudge::execute_apart(const Graph& a, const Graph& b, bool changes_a) {
  if (!changes_a && !runs_a_) runs_a_ = run(a_, nullptr);
  return judge_apart([&] { return changes_a ? execute(a, b, *run(a, nullptr)) : execute(a, b, *runs_a_); });
}

Judgement MutantJudge::verify(const Graph& a, const Graph& b, bool changes_a) {
  if (changes_a)
    if (const auto own = verify_graph(a); !own.empty()) return {Fate::kNoStep, own.front().invariant};
  if (const auto own = verify_graph(b); !own.empty()) return {Fate::kRefusedAlone, own.front().invariant};
  report_ = verify_rewrite(a, b);
  if (!report_.violations.empty()) return {Fate::kRefused, report_.violations.front().invariant};
  return {};
}

Judgement MutantJudge::execute(const Graph& a, const Graph& b, const Runs& runs_a) const {
  if (!runs_a.problem.empty()) return {Fate::kNoStep, runs_a.problem};
  const auto runs_b = run(b, &a);
  if (!runs_b->problem.empty()) return {Fate::kNotExecutable, runs_b->problem};
  const ResultClasses classes(b, report_);
  std::string why;
  for (std::size_t i = 0; i < setup_.data.size() && why.empty(); ++i) {
    bool has_sums = false;
    for (Rank rank = 0; rank < runs_a.results[i].size() && why.empty(); ++rank) {
      const std::vector<StepResult>&in_a = runs_a.results[i][rank], &in_b = runs_b->results[i][rank];
      if (in_a.size() != in_b.size()) why = "another number of results";
      if (why.empty()) why = find_new_sharing(in_a, in_b);
      for (std::size_t j = 0; j < in_a.size() && why.empty(); ++j) {
        const auto difference = replay::compare_tensors(in_a[j].tensor, in_b[j].tensor);
        if (difference.is_equal()) continue;
        const Numerics numerics = classes.of(in_b[j]);
        if (numerics == Numerics::kSumOrder && difference.problem.empty()) {
          has_sums = has_sums || !is_right_sum(in_a[j], in_b[j], i, rank);
        } else {
          why = fmt::format("rank {}: {} ({}): {}", rank, in_a[j].name, name_of(numerics),
                            describe(difference));
        }
      }
    }
    if (why.empty() && has_sums) why = judge_sums(a, b, setup_.data[i]);
  }
  if (why.empty()) return {};
  for (const std::string& assumption : report_.assumptions)
    if (!std::ranges::binary_search(assumptions_, assumption)) return {Fate::kAssumed, why};
  return {Fate::kWrong, why};
}

// The bits that a right rewrite has beside those of the step.
bool MutantJudge::is_right_sum(const StepResult& in_a, const StepResult& in_b, std::size_t data,
                               std::size_t rank) const {
  const auto is_in = [&](const Runs& runs, const StepResult& result) {
    if (!runs.problem.empty()) return false;
    return std::ranges::any_of(runs.results[data][rank], [&](const StepResult& right) {
      return right.is_input == result.is_input && right.place == result.place &&
             replay::compare_tensors(right.tensor, result.tensor).is_equal();
    });
  };
  return runs_b_ && is_in(*runs_a_, in_a) && is_in(*runs_b_, in_b);
}

// Regrouped sums must lie within what their summands allow.
std::string MutantJudge::judge_sums(const Graph& a, const Graph& b, std::uint64_t data) const {
  replay::CheckSetup setup{.kernels = setup_.kernels, .ranks = setup_.ranks, .data = data, .options = {}};
  setup.data.recipe = setup_.recipe;
  setup.options.deadline = setup_.deadline;
  setup.options.types = replay::RecordedTypes::kReport;
  setup.options.fill = replay::HostMemory::Fill::kPoison;
  const replay::CheckReport report = replay::check_graphs(a, b, setup);
  const double allowed = error_without_bound(a);
  for (const replay::OutputCheck& output : report.outputs) {
    const bool is_far = !(output.difference.relative_error <= allowed);
    if (output.verdict == replay::Verdict::kDiffers ||
        (output.verdict == replay::Verdict::kUnverified && is_far))
      return fmt::format("rank {}: {} (sum-order): {}", output.rank, output.name,
                         describe(output.difference));
  }
  return {};
}

}  // namespace epweave
