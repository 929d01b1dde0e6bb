// What to do where a graph cannot be resized as it is.
#pragma once

#include <string>

#include "ir/graph.h"

namespace epweave {

// "resize the graph before its passes (chunk)": of a graph that passes have changed they are named.
std::string resize_before_passes(const Graph& graph);

// Where a number does not follow a size.
std::string find_other_way(const Graph& graph);

}  // namespace epweave
