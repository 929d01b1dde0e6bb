// Where backward begins in a joint graph: at its seeds, the gradients that the caller gives.
//
//   %tangents_1 = placeholder             a tangent: "tangents" is in the name (AOTAutograd's joint graphs)
//   %one = ones_like(%loss)               the gradient of the loss: a number, read by backward alone
#pragma once

#include "analysis/users.h"
#include "ir/graph.h"

namespace epweave {

// Of a node of the step, whose inputs and users are given.
bool is_seed(const Graph& graph, const NodeLists& inputs, const NodeLists& users, NodeId id);

}  // namespace epweave
