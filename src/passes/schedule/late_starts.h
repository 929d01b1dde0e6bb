// Priorities that know how busy the streams are, from an order that was found.
//
//   tail         the longest path to the end: takes it that every stream is free
//   late tail    the same as a schedule has it: the order's nodes are scheduled again from the end of the step,
//                each stream taking what ends latest first. How long before the end a node starts there
//
// Taken as priorities of the next schedule (list_schedule.h), they make the whole step shorter
// where the order left room: forward-backward improvement of resource-constrained project
// scheduling. Memory and the compute that a launch joins are left to the schedule forward. O(n log
// n).
#pragma once

#include <vector>

#include "passes/schedule/schedule_problem.h"

namespace epweave {

// `starts`: by node, when it starts in the order found; kernels and launches. Seconds to the end,
// by node.
std::vector<double> find_late_tails(const ScheduleProblem& problem, const std::vector<double>& starts);

}  // namespace epweave
