#pragma once

#include "cost/step_model.h"
#include "ir/graph.h"

namespace epweave {

// Prices a modelled step's collectives so that all members of a group price them alike: as a member
// on the node that has the fewest. What decides an order needs that; one rank's own time is what
// the step is modelled with. Changes nothing of groups that have as many members on each of their
// nodes, nor of what was measured. Returns how many groups have not.
//
//   ranks [0, 1, 2, 4], 4 on a node      rank 4's price, on all four
std::size_t price_for_all_members(const Graph& graph, StepModel& model);

}  // namespace epweave
