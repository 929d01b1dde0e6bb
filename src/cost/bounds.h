// How fast a step can be at all: lower bounds on the makespan of every order that keeps
// StepModel::before, with each node on its stream and no cost of the host.
//
//   critical path       the longest path of seconds
//   load                the busiest stream
//   head-load-tail      one stream whose nodes are released at their heads and followed by their
//                       tails: the optimum of 1 | r_j, q_j, preemption | max(C_j + q_j), by running
//                       the released node with the longest tail
//   joints              the same for the ancestors of nodes on the critical path, whose heads it
//                       raises; and for their descendants, whose tails it raises; then all three
//                       above with these
//
// A head is a time before which a node cannot start; a tail is the time that must pass behind its
// end.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "cost/step_model.h"

namespace epweave {

struct StepBounds {
  double critical_path = 0, load = 0, head_load_tail = 0, joints = 0;  // seconds
  double lower_bound = 0;                                              // the largest
};

// By place, in seconds.
struct HeadsAndTails {
  std::vector<double> heads, tails;
};

// `more` are pairs (before, after) of places beyond StepModel::before, each with before < after: a
// bound for the orders that keep them, too. `known` gets the raised heads and tails; where it has
// some (of fewer pairs) they are the start. `waists`: places where the step is narrow, as its loss,
// whose ancestors and descendants are all looked at.
StepBounds find_bounds(const StepModel& model, std::span<const std::pair<Place, Place>> more = {},
                       HeadsAndTails* known = nullptr, std::span<const Place> waists = {});

// Longest paths of seconds to each place and from its end.
HeadsAndTails find_longest_paths(const StepModel& model);

// A longest path: places in order.
std::vector<Place> find_critical_path(const StepModel& model, const HeadsAndTails& paths);

// The last forward kernel of the critical path: the loss, in practice. kNoPlace where that has
// none.
Place find_forward_end(const Graph& graph, const StepModel& model);

// Pairs that keep recomputed kernels and launches behind the forward: from its end to each. Without
// them a bound takes it that the forward's idle time may be filled with recomputation, which no
// memory allows. Empty where nothing is recomputed.
std::vector<std::pair<Place, Place>> keep_recomputation_behind(const Graph& graph, const StepModel& model);

}  // namespace epweave
