// Where backward begins in a joint graph: at its seeds, the gradients that the caller gives.
//
//   %tangents_1 = placeholder             a tangent: its role is `tangent`, or "tangents" is in its name
//                                         (AOTAutograd's joint graphs)
//   %one = ones_like(%loss)               the gradient of the loss: a number, read by backward alone
#pragma once

#include "analysis/users.h"
#include "ir/graph.h"

namespace epweave {

// In the order of the step, whose nodes' inputs and users are given.
std::vector<NodeId> find_seeds(const Graph& graph, const NodeLists& inputs, const NodeLists& users);

}  // namespace epweave
