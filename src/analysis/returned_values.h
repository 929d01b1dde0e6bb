// What a step returns.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

// One for each role in Graph::outputs, in their order.
std::vector<Arg> list_returned(const Graph& graph);

// The same; none: the value is no node's.
std::vector<NodeId> list_outputs(const Graph& graph);

// "grad of layers.0.w", "loss"; the role is given.
std::string describe_output(const Graph& graph, const OutputRole& output);

}  // namespace epweave
