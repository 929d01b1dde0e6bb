// Which of the nodes that are ready a list scheduler executes next.
//
//   kernels    the one that goes on with what ran last, if no other is more urgent by `loyalty`;
//              else the most urgent of those that fit in memory
//   launches   of each group the most urgent that fits
//
// A node may pass only so much compute, against the order that the body has: the window begins at
// the first kernel that is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "passes/schedule/list_queue.h"
#include "passes/schedule/list_ready.h"
#include "passes/schedule/list_schedule.h"
#include "passes/schedule/placed_order.h"
#include "passes/schedule/schedule_problem.h"

namespace epweave {

class ListChoice {
 public:
  // `priority`, `work_before`: by node, seconds. Takes over what is newly ready. All must outlive
  // this.
  ListChoice(const ScheduleProblem& problem, const std::vector<double>& priority,
             const std::vector<double>& work_before, const ListOptions& options, NewlyReady& newly,
             PlacedOrder& placed);

  // How much work of the body's own order may stand in front of what is chosen.
  double window_end();
  // kNoPlace: none that fits. What is picked stays ready until it is placed.
  Place pick_kernel();
  Place pick_launch(std::uint32_t group, double window_end);

 private:
  Place find_loyal(double window_end, double least) const;
  Place pick_from(RankedQueue& queue, std::size_t tries);

  const std::vector<double>& priority_;
  const std::vector<double>& work_before_;
  const ListOptions& options_;
  NewlyReady& newly_;
  PlacedOrder& placed_;
  std::vector<Place> kernels_;  // in the order of the body
  std::size_t first_kernel_ = 0;
  RankedQueue ready_, by_place_;
  std::vector<RankedQueue> ready_launches_;  // by group
  std::vector<RankedNode> tried_;
};

}  // namespace epweave
