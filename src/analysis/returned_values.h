// What a step returns.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace epweave {

// One for each role in Graph::outputs, in their order.
std::vector<Arg> list_returned(const Graph& graph);

// The same; none: the value is no node's.
std::vector<NodeId> list_outputs(const Graph& graph);

}  // namespace epweave
