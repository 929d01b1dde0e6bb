// Values of a region that have parts, where a node wants the whole of one.
//
//   %z = zeros([u, 8])        a region's: made for each part, and, wanted whole, made once more
//   %y = relu(%x)             a region's: its parts, and, wanted whole, a join of them
#pragma once

#include "base/id.h"
#include "ir/graph.h"
#include "placement/placement.h"

namespace epweave {

// Whether the node's region makes the value in parts.
inline bool is_in_parts(const Placements& placements, NodeId id) {
  return placements.region[id] && placements.is_divided(id);
}

// Whether a node of a region takes a divided value.
bool takes_divided(const Graph& graph, const Placements& placements, NodeId id);

// Values in parts that depend on no divided tensor's content: a size, a factory, a view of such.
// They are cheaper to make again than to join.
IdSet<NodeId> find_made_of_sizes(const Graph& graph, const Placements& placements);

// Whether a value in parts is computed of sizes or counts: what is made of their sums is none of
// its parts' (u//8).
bool is_size_arithmetic(const Graph& graph, const Placements& placements, NodeId id);

// Values in parts of which some node takes the whole. Who reads no more of one than its type saves
// nothing by taking a part, which may be dropped behind the join.
IdSet<NodeId> find_wanted_whole(const Graph& graph, const Placements& placements);

}  // namespace epweave
