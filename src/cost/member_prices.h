#pragma once

#include "cost/step_model.h"
#include "ir/graph.h"

namespace epweave {

// Prices a modelled step's collectives so that all ranks price them alike: as a member on the node
// that has the fewest, of whichever rank's group of that name. What decides an order needs that;
// one rank's own time is what the step is modelled with. Changes nothing of groups that lie on
// nodes alike on all ranks, with as many members on each node, nor of what was measured. Returns
// how many groups do not.
//
//   ranks [0, 1, 2, 4], 4 on a node          rank 4's price, on all four
//   [0, 1], [2, 3], [4, 5], 3 on a node      [2, 3] lies on two nodes: its price, on all six
std::size_t price_for_all_members(const Graph& graph, StepModel& model);

}  // namespace epweave
