// Which nodes of a step a list scheduler may execute: those whose inputs are done. What costs
// nothing is done as soon as its inputs are.
//
//   g = all_gather(x)   w = wait(g)   v = view(x)   c = mul(v, v)   d = mm(c, w)
//
//   at the start      g; c, as v costs nothing
//   g executed        w is in flight until g ends
//   w and c executed  d
#pragma once

#include <cstdint>
#include <vector>

#include "passes/schedule/list_queue.h"
#include "passes/schedule/placed_order.h"
#include "passes/schedule/schedule_problem.h"

namespace epweave {

// What is ready and was not asked for yet.
struct NewlyReady {
  // By the work in front of them: the earliest on top.
  RankedQueue kernels;
  std::vector<RankedQueue> launches;  // by group
  // Waits, and launches whose result is taken without one, by the time at which they are done.
  RankedQueue in_flight;
  // Kernels that became ready since the reader emptied it.
  std::vector<Place> recent;
};

class ListReadiness {
 public:
  // `work_before`: by node, seconds. All must outlive this.
  ListReadiness(const ScheduleProblem& problem, const std::vector<double>& work_before, PlacedOrder& placed);

  // What nothing must precede is ready.
  void start();
  // That a kernel or a wait was placed.
  void complete(Place node);
  // That a launch was placed, which ends at `end`: waits for it are in flight until then. Others
  // than waits take its result when it is done: the size of what an exchange received.
  void launch(Place node, double end);
  // That it is done: they may take it.
  void land(Place launch);

  // How many nodes are left to place.
  std::size_t left() const { return left_; }
  bool has_inputs(Place node) const { return missing_[node] == 0; }
  NewlyReady& newly() { return newly_; }
  const NewlyReady& newly() const { return newly_; }

 private:
  void tell(Place user);
  void tell_users(Place node);
  void settle();

  const ScheduleProblem& p_;
  const std::vector<double>& work_before_;
  PlacedOrder& placed_;
  std::vector<std::uint32_t> missing_;  // by node: inputs that are not done
  std::vector<double> launched_end_;    // by node
  std::size_t left_ = 0;
  std::vector<Place> released_;
  NewlyReady newly_;
};

}  // namespace epweave
