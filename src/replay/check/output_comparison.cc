#include "replay/check/output_comparison.h"

#include <fmt/format.h>

namespace epweave::replay {

OutputComparison::OutputComparison(const std::vector<bool>& inputs, RankRange ranks, Keep keep)
    : inputs_(inputs), first_(ranks.first), keep_(keep), ranks_(ranks.end - ranks.first) {}

ShowResults OutputComparison::show_a() {
  return {inputs_, [this](Rank rank, std::size_t, const ShownResult& shown) {
            OfRank& of_rank = at(rank);
            of_rank.a.push_back({shown.hash, shown.has_nan, shown.has_not_finite});
            of_rank.kept_a.push_back(keep_ == Keep::kAll ? shown.fetch() : Tensor());
          }};
}

ShowResults OutputComparison::show_b() {
  return {inputs_, [this](Rank rank, std::size_t number, const ShownResult& shown) {
            OfRank& of_rank = at(rank);
            of_rank.b.push_back({shown.hash, shown.has_nan, shown.has_not_finite});
            const bool is_kept = keep_ == Keep::kAll || differs(of_rank, number);
            of_rank.kept_b.push_back(is_kept ? shown.fetch() : Tensor());
          }};
}

ShowResults OutputComparison::show_a_again() {
  return {inputs_, [this](Rank rank, std::size_t number, const ShownResult& shown) {
            OfRank& of_rank = at(rank);
            if (number >= of_rank.a.size()) return;
            of_rank.differences.resize(of_rank.a.size());
            if (of_rank.a[number].hash != shown.hash) of_rank.is_repeated = false;
            if (number >= of_rank.b.size() || !differs(of_rank, number)) return;
            TensorDifference& difference = of_rank.differences[number];
            difference = compare_tensors(shown.fetch(), of_rank.kept_b[number]);
            if (difference.is_equal()) difference.problem = "A gave other bits, and B's the second time";
            if (keep_ == Keep::kWhatDiffers) of_rank.kept_b[number] = {};
          }};
}

ShowResults OutputComparison::expect(std::vector<Bits> OfRank::*first, bool OfRank::*holds) {
  return {inputs_, [this, first, holds](Rank rank, std::size_t number, const ShownResult& shown) {
            OfRank& of_rank = at(rank);
            const std::vector<Bits>& bits = of_rank.*first;
            if (number < bits.size() && bits[number].hash != shown.hash) of_rank.*holds = false;
          }};
}

std::vector<OutputCheck> OutputComparison::list_checks(Rank rank, const OutputPair& names) const {
  const OfRank& of_rank = at(rank);
  const auto& [a, b] = names;
  if (a.size() != b.size())
    throw InputError(fmt::format("the graphs return {} and {} tensors", a.size(), b.size()));
  EPWEAVE_CHECK(of_rank.a.size() == a.size() && of_rank.b.size() == b.size());
  std::vector<OutputCheck> checks;
  for (std::size_t i = 0; i < a.size(); ++i) {
    OutputCheck& output = checks.emplace_back(OutputCheck{rank, a[i].name, Verdict::kEqual, {}, {}});
    output.difference.problem = a[i].name == b[i].name ? find_misfit(a[i].tensor, b[i].tensor)
                                                       : fmt::format("roles {} and {}", a[i].name, b[i].name);
    if (differs(of_rank, i) || !output.difference.problem.empty()) output.verdict = Verdict::kDiffers;
  }
  return checks;
}

void OutputComparison::add_differences(Rank rank, std::vector<OutputCheck>& checks) const {
  const OfRank& of_rank = at(rank);
  EPWEAVE_CHECK(of_rank.differences.size() == checks.size());
  for (std::size_t i = 0; i < checks.size(); ++i)
    if (checks[i].difference.problem.empty()) checks[i].difference = of_rank.differences[i];
}

void OutputComparison::count_not_finite(Rank rank, const RankOutputs& names, CheckReport& report) const {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Bits& bits = at(rank).a[i];
    if (!bits.has_not_finite) continue;
    ++report.outputs_not_finite;
    // An infinity may be meant elsewhere, as in a mask.
    const bool is_of_step = names[i].name == "loss" || names[i].name.starts_with("grad");
    if (is_of_step || bits.has_nan) report.step_is_finite = false;
  }
}

RankOutputs OutputComparison::join(RankOutputs names, const std::vector<Tensor>& tensors) {
  for (std::size_t i = 0; i < names.size(); ++i) names[i].tensor = tensors[i];
  return names;
}

bool OutputComparison::differs(const OfRank& rank, std::size_t number) {
  return number < rank.a.size() && rank.a[number].hash != rank.b[number].hash;
}

}  // namespace epweave::replay
