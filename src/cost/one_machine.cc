#include "cost/one_machine.h"

#include <algorithm>
#include <limits>

namespace epweave {

namespace {

// What some order gives is at least the optimum: that of the heads.
double bound_from_above(std::span<const MachineJob> jobs) {
  double time = 0, most = 0;
  for (const MachineJob& job : jobs) {
    time = std::max(time, job.head) + job.seconds;
    most = std::max(most, time + job.tail);
  }
  return most;
}

}  // namespace

double one_machine_bound(std::span<MachineJob> jobs, MachineHeap& heap, double known) {
  std::ranges::sort(jobs, {}, &MachineJob::head);
  if (bound_from_above(jobs) <= known) return known;
  heap.clear();  // tail, seconds left
  constexpr auto by_tail = [](const auto& a, const auto& b) { return a.first < b.first; };
  double time = 0;
  std::size_t next = 0;
  while (next < jobs.size() || !heap.empty()) {
    if (heap.empty()) time = std::max(time, jobs[next].head);
    for (; next < jobs.size() && jobs[next].head <= time; ++next) {
      heap.emplace_back(jobs[next].tail, jobs[next].seconds);
      std::push_heap(heap.begin(), heap.end(), by_tail);
    }
    const double until = next < jobs.size() ? jobs[next].head : std::numeric_limits<double>::infinity();
    // It goes on until a job is released or it is done.
    auto& [tail, seconds] = heap.front();
    if (time + seconds > until) {
      seconds -= until - time;
      time = until;
      continue;
    }
    time += seconds;
    known = std::max(known, time + tail);
    std::pop_heap(heap.begin(), heap.end(), by_tail);
    heap.pop_back();
  }
  return known;
}

}  // namespace epweave
