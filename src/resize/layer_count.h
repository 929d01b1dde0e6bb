// The number of layers of a graph: how many modules `layers.N` it has, and a graph of the first
// ones.
//
// A layer's nodes are those of its module, and calls without a module between them: a sum of
// gradients belongs to the layer that it is last made of (backward: the lowest, forward: the
// highest).
//
//   forward    %x1 = ..@layers.0   %x2 = ..(%x1) @layers.1   %y = norm(%x2)        norm reads %x1
//   backward   %dy = ..@norm       %d1 = ..(%dy) @layers.1   %d0 = ..(%d1)          %d0 reads %dy
//
// The layers that go must be a chain: one value leaves them forward, one backward, each of the type
// of the one that replaces it. What backward computes again of the forward value is replaced by
// what forward made: it is kept for backward.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

// 0: there are no such modules.
std::int64_t count_layers(const Graph& graph);

// The graph with the first `count` layers, at least 1 and fewer than there are. Throws PassError
// "resize.layers" where the others are no chain.
Graph keep_layers(const Graph& graph, std::int64_t count, std::vector<std::string>& notes);

}  // namespace epweave
