// Slices whose bounds the graph for all ranks computes, when their numbers on one rank are known.
//
//   %s = split(%x, 4, 1); %e = getitem(%s, 1)     %y = slice(%x, 1, 4 * c, 4 + 4 * c), of c = 1      %e
//
// Each reader takes the piece from the split, or from the slice that had numbers before, that gives
// the same: the nearest before it, as equal pieces may stand before and behind. Where passes have
// left none, the slice becomes the call with which ranks take the piece, as it says itself
// (passes/rank_elements.h).
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace epweave {

std::vector<NodeId> find_computed_slices(const Context& context, const Body& body);

// Of those that were found before their bounds were numbers.
void take_elements(Graph& graph, Body& body, std::span<const NodeId> slices);

}  // namespace epweave
