// Work of the backward, brought forward into time in which the compute stream waits.
//
//   forward    C1 ======          wait C1, mul, ..      the compute stream idles for 1.4 ms
//   backward   .. recompute layer 3 (1.0 ms), ..        needs nothing of the backward
//
// Behind the forward every millisecond counts, in front of the wait it is free: recomputation whose
// operands are there is done in the idle time, and its results are kept until then. What keeps the
// fewest bytes for a second goes first, as long as the budget allows it. No kernel delays another:
// it is as long as what is left of the idle time, or shorter.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/schedule/schedule_problem.h"

namespace epweave {

// The order with such work in other places; the given one where none is found. The problem says
// what may go in front of what.
std::vector<Place> fill_idle(const ScheduleProblem& problem, const std::vector<Place>& order,
                             std::int64_t budget);

}  // namespace epweave
