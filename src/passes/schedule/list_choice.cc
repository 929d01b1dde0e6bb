#include "passes/schedule/list_choice.h"

#include <limits>

namespace epweave {

ListChoice::ListChoice(const ScheduleProblem& problem, const std::vector<double>& priority,
                       const std::vector<double>& work_before, const ListOptions& options, NewlyReady& newly,
                       PlacedOrder& placed)
    : priority_(priority),
      work_before_(work_before),
      options_(options),
      newly_(newly),
      placed_(placed),
      ready_launches_(problem.groups) {
  for (Place i = 0; i < problem.size(); ++i)
    if (problem.work[i] == PlaceWork::kKernel) kernels_.push_back(i);
}

double ListChoice::window_end() {
  while (first_kernel_ < kernels_.size() && placed_.has(kernels_[first_kernel_])) ++first_kernel_;
  return (first_kernel_ < kernels_.size() ? work_before_[kernels_[first_kernel_]]
                                          : std::numeric_limits<double>::infinity()) +
         options_.window;
}

Place ListChoice::pick_kernel() {
  const double limit = window_end();
  while (!newly_.kernels.empty() && -newly_.kernels.top().rank <= limit) {
    const Place node = newly_.kernels.pop().node;
    ready_.push({priority_[node], node});
    by_place_.push({-static_cast<double>(node), node});
  }
  while (!ready_.empty() && placed_.has(ready_.top().node)) ready_.pop();
  if (ready_.empty()) return kNoPlace;
  const Place loyal = find_loyal(limit, ready_.top().rank - options_.loyalty);
  if (loyal != kNoPlace && placed_.fits(loyal)) return loyal;
  if (const Place node = pick_from(ready_, 24); node != kNoPlace) return node;
  return pick_from(by_place_, 8);
}

Place ListChoice::find_loyal(double window_end, double least) const {
  Place best = kNoPlace;
  for (const Place node : newly_.recent)
    if (!placed_.has(node) && work_before_[node] <= window_end && priority_[node] >= least &&
        (best == kNoPlace || priority_[node] > priority_[best]))
      best = node;
  return best;
}

Place ListChoice::pick_launch(std::uint32_t group, double window_end) {
  RankedQueue& held = newly_.launches[group];
  while (!held.empty() && -held.top().rank <= window_end) {
    const Place node = held.pop().node;
    ready_launches_[group].push({priority_[node], node});
  }
  return pick_from(ready_launches_[group], 4);
}

// The first in the queue that fits in memory.
Place ListChoice::pick_from(RankedQueue& queue, std::size_t tries) {
  Place found = kNoPlace;
  tried_.clear();
  while (!queue.empty() && tried_.size() < tries && found == kNoPlace) {
    const RankedNode entry = queue.pop();
    if (placed_.has(entry.node)) continue;
    tried_.push_back(entry);
    if (placed_.fits(entry.node)) found = entry.node;
  }
  for (const RankedNode& entry : tried_) queue.push(entry);
  return found;
}

}  // namespace epweave
