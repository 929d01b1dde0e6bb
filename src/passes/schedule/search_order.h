// The best order that a number of list schedules find (list_schedule.h).
//
// List scheduling decides ties and near ties blindly, and a larger window or budget can give a
// longer schedule. So: the same list schedule under many settings, each again by what it leaves
// (late_starts.h); then again and again from the best one found, with other priorities of some
// roles, or of what ends a block of its critical path (critical_blocks.h). Nodes of one role change
// alike, so that what is found for one layer holds for all. What is kept is measured, not
// estimated: the makespan and the peak of the order itself.
//
// A step with few kernels, launches and waits gets its best order of all (exact_order.h).
//
// Deterministic: the number of schedules follows from the effort and the size of the body, not from
// a clock.
#pragma once

#include "passes/schedule/order_value.h"

namespace epweave {

struct SearchOptions {
  std::int64_t budget = 0;   // bytes
  std::size_t settings = 0;  // of list schedules; each makes up to three
  std::size_t steps = 0;     // list schedules near the best
  bool any = false;          // the first order within the budget is enough, however slow the step is in it
};

struct FoundOrder {
  std::vector<Place> order;
  OrderValue value;
  bool fits = false;            // within the budget
  std::int64_t least_peak = 0;  // of all orders that were finished
  std::size_t schedules = 0;    // that were begun
};

// Never slower than the step's own order, where that is within the budget.
FoundOrder search_order(const ScheduleProblem& problem, const SearchOptions& options);

}  // namespace epweave
