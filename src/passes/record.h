// Writing provenance.
//
// A node's first record says what it is (kept, body, split, ...), later ones what was done to it.
#pragma once

#include "ir/graph.h"

namespace epweave {

// The input-graph nodes that the node stands for in its own right: what its first record says, or itself.
std::vector<StringId> origins_of(const Node& node);

// Uses of `gone` are uses of `kept` now.
struct Merge {
  NodeId kept;
  NodeId gone;
};

// Records at `kept` that it stands for `gone` too, and takes over what `gone` had absorbed before.
void record_merged(Body& body, StringId pass, Merge merge);

// Records that the node's call became a special case of what it was.
void record_specialized(Node& node, StringId pass, StringId reason);

}  // namespace epweave
