// Values that a rewrite moved, and that a later pass takes from the memory of the rewrite itself:
//
//   bucket         %v = view(%buf, [256]); mm(%x, %v)     %v is all of %wait, moved
//   canonicalize   mm(%x, %buf)                           %buf, which %v was merged into, is
//
// are read as what they were, a view that shows all of the memory, so that the rest is checked like
// any other value. The view computes nothing: what the graph does is the same with it. That the
// memory holds the value then is for MovementCheck. Memory that stands for a wait gets its view
// though nothing takes it: what A waits for, B does, too.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace epweave {

// B with a view for each such value, right behind what makes the memory; none where B has none.
std::optional<Graph> write_moved_views(const Graph& a, const Graph& b);

}  // namespace epweave
