// When a stream was busy, as disjoint intervals, and how much of other intervals lies under them.
#pragma once

#include <span>
#include <vector>

namespace epweave {

struct Interval {
  double start = 0, end = 0;  // seconds
  double seconds() const { return end - start; }
};

class BusyTime {
 public:
  // In the order of their starts; those that touch become one.
  void add(Interval interval);
  void clear();

  double seconds() const;  // of all intervals
  double until(double time) const;
  double within(Interval interval) const { return until(interval.end) - until(interval.start); }

  // Seconds for which some interval of `running` goes on and this stream is idle. Sorts `running`.
  double idle_under(std::vector<Interval>& running) const;

 private:
  std::vector<Interval> intervals_;
  std::vector<double> sums_;  // seconds busy before each
};

}  // namespace epweave
