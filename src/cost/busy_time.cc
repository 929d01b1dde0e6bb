#include "cost/busy_time.h"

#include <algorithm>

namespace epweave {

void BusyTime::clear() {
  intervals_.clear();
  sums_.clear();
}

void BusyTime::add(Interval interval) {
  constexpr double kTouching = 1e-15;
  if (!intervals_.empty() && intervals_.back().end >= interval.start - kTouching) {
    intervals_.back().end = std::max(intervals_.back().end, interval.end);
    return;
  }
  sums_.push_back(seconds());
  intervals_.push_back(interval);
}

double BusyTime::seconds() const {
  return intervals_.empty() ? 0 : sums_.back() + intervals_.back().seconds();
}

double BusyTime::until(double time) const {
  const auto after = std::ranges::upper_bound(intervals_, time, {}, &Interval::start);
  if (after == intervals_.begin()) return 0;
  const auto at = static_cast<std::size_t>(after - intervals_.begin()) - 1;
  return sums_[at] + std::min(time, intervals_[at].end) - intervals_[at].start;
}

double BusyTime::idle_under(std::vector<Interval>& running) const {
  std::ranges::sort(running, {}, &Interval::start);
  double idle = 0;
  for (std::size_t i = 0; i < running.size();) {
    Interval all = running[i++];
    for (; i < running.size() && running[i].start <= all.end; ++i)
      all.end = std::max(all.end, running[i].end);
    idle += all.seconds() - within(all);
  }
  return idle;
}

}  // namespace epweave
