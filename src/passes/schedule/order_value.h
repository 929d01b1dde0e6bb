// What an order of a problem's nodes takes: time by the execution model, with a host that costs
// nothing, and memory.
#pragma once

#include <span>
#include <vector>

#include "passes/schedule/schedule_problem.h"

namespace epweave {

// Longest path from a node's start to the end of the step, its own time included. A wait that comes
// behind another launch than its own needs that launch issued, not done.
std::vector<double> find_tails(const ScheduleProblem& problem);

// What an order costs.
struct OrderValue {
  double seconds = 0;
  std::int64_t peak = 0;  // bytes of storages, the most at any node
};
OrderValue evaluate_order(const ScheduleProblem& problem, std::span<const Place> order);

// The compute stream idles in front of the node with that index in the order.
struct IdleTime {
  std::size_t index = 0;
  double seconds = 0;
};
std::vector<IdleTime> find_idle_times(const ScheduleProblem& problem, std::span<const Place> order);

// Bytes that live while the node at each place runs, in the order of the body.
std::vector<std::int64_t> find_live_bytes(const ScheduleProblem& problem);

}  // namespace epweave
