// A step on a clock: one compute stream in the order of the nodes, one stream for each process
// group in the order of its launches, and a host that launches in order.
//
//   kernel    starts when the compute stream is free, its operands are done and the host has
//             launched it
//   launch    a collective starts when its group is free, its operands are done, the host has
//             launched it, and all compute launched before it is done (PyTorch records an event on
//             the compute stream)
//   wait      the compute stream waits for the launch
//   item      the host waits for the number
//   others    are done when their operands are
//
// All times are seconds from the start. Contention (Cluster::has_contention) makes rates depend on
// what runs at the same time; without it a simulation is one pass over the order.
#pragma once

#include <span>
#include <vector>

#include "cost/busy_time.h"
#include "cost/step_model.h"

namespace epweave {

struct OverlapSums {
  double makespan = 0;
  double compute = 0;                        // of the compute stream's kernels
  double comm = 0;                           // of all groups' collectives
  double exposed = 0;                        // the compute stream idles while some collective runs
  double idle = 0;                           // nothing runs
  double hidden = 1;                         // share of the collectives' time under running kernels
  std::size_t full = 0, part = 0, none = 0;  // collectives hidden by at least 99 %, between, by at most 1 %
  std::vector<double> group_comm, group_exposed;  // by position in StepModel::step_groups
};

// Holds what a simulation needs; `run` allocates nothing behind the first call. The model must
// outlive it.
class Simulator {
 public:
  explicit Simulator(const StepModel& model);

  // The makespan of an order: a permutation of all places that keeps StepModel::before.
  double run(std::span<const Place> order);

  // Of the last run, by place. Nodes without time of their own start and end when their operands
  // are done.
  double start(Place place) const { return times_[place].start; }
  double end(Place place) const { return times_[place].end; }
  // Kernels and collectives in the order in which they started on their streams.
  std::span<const Place> kernels() const { return kernels_; }
  std::span<const Place> collectives() const { return collectives_; }

  // Overlap of the last run. `exposed` gets each collective's exposed seconds, in the order of
  // collectives().
  OverlapSums measure(std::vector<double>* exposed = nullptr);

 private:
  double run_alone(std::span<const Place> order);

  const StepModel& model_;
  std::vector<Interval> times_;
  std::vector<double> group_free_;
  std::vector<Place> kernels_, collectives_;
  double makespan_ = 0;
  BusyTime busy_;                  // of the compute stream
  std::vector<Interval> running_;  // of all groups
};

std::vector<Place> given_order(const StepModel& model);

}  // namespace epweave
