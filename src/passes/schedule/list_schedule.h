// One order of a body by list scheduling with a clock and exact memory.
//
//   given    g = all_gather(a); w = wait(g); c = mul(x, x); d = mm(c, w)      3 + 1 + 2 ms
//   result   g = all_gather(a); c = mul(x, x); w = wait(g); d = mm(c, w)          3 + 2 ms
//
// The clock is that of the execution model (a compute stream, a stream per group, a host that costs
// nothing). At the time at which the compute stream is free:
//
//   waits      of collectives that are done execute at once: they cost nothing then, and free
//              operands
//   kernel     of those that are ready (their operands done), the one with the longest path to the
//              end, or the one that goes on with what ran last, if no other is more urgent by
//              `loyalty`
//   launches   in front of that kernel, one for each group that would fall idle while it runs
//   patience   a kernel that would still run when a collective ends that something more urgent
//              needs may have to stand back: a short exchange of counts must not cost the dispatch
//              behind it a long kernel
//   nothing    ready: the clock advances to the next end of a collective; then launches may fill
//              idle groups
//
// Memory: a node executes only if what lives then fits, and if what is left still fits in the order
// that the body has (memory_forecast.h). So there is always a way on, and the result's peak is
// within `budget`, if that is at least the peak of the body's own order.
//
// The result respects `problem.inputs`, the same bytes for the same input. O(n log n).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "passes/schedule/remaining_time.h"
#include "passes/schedule/schedule_problem.h"

namespace epweave {

struct ListOptions {
  std::int64_t budget = 0;
  double window = 0;    // how much compute a node may pass, against the order that the body has
  double loyalty = 0;   // seconds of priority
  double patience = 0;  // seconds to idle at most, for each second that something more urgent would be late
  // With `remaining`, a schedule that must take longer than `limit` is not finished.
  double limit = 0;
  const RemainingTime* remaining = nullptr;
  // Nor is one that needs more bytes than this, where they may be fewer than its budget.
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

// The compute stream was idle until `at`, for so long.
struct Stall {
  double at = 0, seconds = 0;
};

struct ListSchedule {
  std::vector<Place> order;
  double seconds = 0;  // infinite where it was not finished: then there is no order
  std::int64_t peak = 0;
  std::vector<double> starts;  // of kernels and launches, by node: when the scheduler took them
  std::vector<Stall> stalls;
};

// `priority`: by node, seconds; higher goes first. `live`: find_live_bytes.
ListSchedule schedule_list(const ScheduleProblem& problem, const std::vector<std::int64_t>& live,
                           std::vector<double> priority, const ListOptions& options);

}  // namespace epweave
