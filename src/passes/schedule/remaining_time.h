// At least how long a step still takes once some of its nodes have been started: an order that
// cannot get short enough need not be finished.
//
//   left on the compute stream   a 2 ms, 5 ms must follow    b 3 ms, 1 ms must follow
//   at least                     max(2 + 5, 2 + 3 + 1) = 7 ms
//
// A stream runs what is left on it one after the other, and behind the last of any of these nodes
// the least comes that must follow one of them.
#pragma once

#include <span>
#include <vector>

#include "passes/schedule/schedule_problem.h"

namespace epweave {

class RemainingTime {
 public:
  // `tails`: find_tails.
  RemainingTime(const ScheduleProblem& problem, std::span<const double> tails);

  // The step's end, where each stream is free at `free` (by group, and then the compute stream).
  // What was started once stays so: it is forgotten.
  double end_at_least(std::span<const double> free, std::span<const char> started);

 private:
  struct Left {
    double seconds, follows;
    Place node;
  };
  std::vector<std::vector<Left>> streams_;  // by what must follow, the longest first
};

}  // namespace epweave
