// The nodes that take a step's inputs, by their names.
#pragma once

#include <map>

#include "ir/graph.h"

namespace epweave {

// `Graph::inputs` say what the inputs are, by name.
std::map<StringId, NodeId> list_placeholders(const Graph& graph);

}  // namespace epweave
