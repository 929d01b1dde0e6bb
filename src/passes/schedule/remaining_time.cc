#include "passes/schedule/remaining_time.h"

#include <algorithm>

namespace epweave {

RemainingTime::RemainingTime(const ScheduleProblem& problem, std::span<const double> tails)
    : streams_(problem.groups + 1) {
  for (Place i = 0; i < problem.size(); ++i) {
    if (!problem.is_timed(i)) continue;
    const bool is_kernel = problem.work[i] == PlaceWork::kKernel;
    streams_[is_kernel ? problem.groups : problem.group[i]].push_back(
        {problem.seconds[i], tails[i] - problem.seconds[i], i});
  }
  for (std::vector<Left>& stream : streams_)
    std::ranges::stable_sort(stream, [](const Left& a, const Left& b) { return a.follows > b.follows; });
}

double RemainingTime::end_at_least(std::span<const double> free, std::span<const char> started) {
  double end = 0;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    std::erase_if(streams_[s], [&](const Left& left) { return started[left.node] != 0; });
    double at = free[s];
    for (const Left& left : streams_[s]) {
      at += left.seconds;
      end = std::max(end, at + left.follows);
    }
  }
  return end;
}

}  // namespace epweave
