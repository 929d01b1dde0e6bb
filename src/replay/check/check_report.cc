#include "replay/check/check_report.h"

#include <algorithm>

namespace epweave::replay {
namespace {

template <class T>
void append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

void add(FirstRun& all, const FirstRun& of_rank) {
  all.seconds = std::max(all.seconds, of_rank.seconds);
  all.contradictions += of_rank.contradictions;
  if (all.first_contradiction.empty()) all.first_contradiction = of_rank.first_contradiction;
}

void add(std::optional<ReferenceCheck>& all, const std::optional<ReferenceCheck>& of_rank) {
  if (!of_rank) return;
  if (!all) all.emplace();
  all->outputs += of_rank->outputs;
  all->equal_to_a += of_rank->equal_to_a;
  all->equal_to_b += of_rank->equal_to_b;
  all->largest_error = std::max(all->largest_error, of_rank->largest_error);
  all->largest_error_of_b = std::max(all->largest_error_of_b, of_rank->largest_error_of_b);
  if (all->first_unlike_b.empty()) all->first_unlike_b = of_rank->first_unlike_b;
}

void add(CheckReport& all, const CheckReport& of_rank) {
  all.baseline_is_deterministic = all.baseline_is_deterministic && of_rank.baseline_is_deterministic;
  all.rewrite_is_deterministic = all.rewrite_is_deterministic && of_rank.rewrite_is_deterministic;
  append(all.outputs, of_rank.outputs);
  append(all.ranks, of_rank.ranks);
  if (of_rank.first && (!all.first || of_rank.first->position < all.first->position))
    all.first = of_rank.first;
  append(all.kernel_changes, of_rank.kernel_changes);
  if (!all.first_change) all.first_change = of_rank.first_change;
  all.largest_share = std::max(all.largest_share, of_rank.largest_share);
  all.ops_without_bound.insert(of_rank.ops_without_bound.begin(), of_rank.ops_without_bound.end());
  all.added_roundings.insert(of_rank.added_roundings.begin(), of_rank.added_roundings.end());
  add(all.reference, of_rank.reference);
  if (of_rank.bounds != Bounds::kNone) all.bounds = of_rank.bounds;
  all.devices_agree = all.devices_agree && of_rank.devices_agree;
  all.outputs_not_finite += of_rank.outputs_not_finite;
  all.step_is_finite = all.step_is_finite && of_rank.step_is_finite;
  add(all.run_a, of_rank.run_a);
  add(all.run_b, of_rank.run_b);
}

}  // namespace

CheckReport merge(const std::vector<CheckReport>& ranks) {
  CheckReport all;
  for (const CheckReport& of_rank : ranks) add(all, of_rank);
  return all;
}

CheckReport::Conclusion CheckReport::conclusion() const {
  const auto has = [&](Verdict verdict) {
    return std::any_of(outputs.begin(), outputs.end(),
                       [=](const OutputCheck& output) { return output.verdict == verdict; });
  };
  if (first || has(Verdict::kDiffers)) return Conclusion::kDifferent;
  if (!baseline_is_deterministic || !rewrite_is_deterministic || !devices_agree || !step_is_finite ||
      has(Verdict::kUnverified) || has(Verdict::kLibraryKernel))
    return Conclusion::kNotVerified;
  return Conclusion::kSame;
}

std::string_view name_of(CheckReport::Conclusion conclusion) {
  constexpr std::string_view kNames[] = {"same", "not verified", "different"};
  return kNames[static_cast<std::size_t>(conclusion)];
}

}  // namespace epweave::replay
