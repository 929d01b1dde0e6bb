// Where backward begins in a joint graph: at its seeds, the gradients that the caller gives.
//
//   %tangents_1 = placeholder             a tangent: its role is `tangent`, or "tangents" is in its name
//                                         (AOTAutograd's joint graphs)
//   %one = ones_like(%loss)               the gradient of the loss: 1, read by backward alone
#pragma once

#include <span>
#include <string>

#include "analysis/users.h"
#include "ir/graph.h"

namespace epweave {

// Gives the inputs of these names the role `tangent`. Throws UsageError where a name is given twice
// or is no input's.
void mark_tangents(Graph& graph, std::span<const std::string> names);

// In the order of the step, whose nodes' inputs and users are given.
std::vector<NodeId> find_seeds(const Graph& graph, const NodeLists& inputs, const NodeLists& users);

}  // namespace epweave
