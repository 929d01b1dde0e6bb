// Floating-point numbers that are whole, so that a cast to integers drops nothing.
//
//   %n = aten.histc(%ids, 8, 0, 8) : f32[8]        counts
//   %t = aten.view(%n, [2, 4])                     the same elements
//   %s = aten.sum.dim_IntList(%t, [1])             their sums
#pragma once

#include "analysis/effects.h"
#include "ir/graph.h"

namespace epweave {

// Of a tensor of 32 bits or more whose elements can be followed back to counts, and that nothing
// ever writes to. Other integers may be too large for a sum of them to be exact, as are counts of
// 2^24 elements in 32 bits: extents that are no numbers are taken to be small enough.
bool has_whole_numbers(const Graph& graph, const Effects& effects, NodeId tensor);

// Whether a cast of a sum over parts to another type is the sum of the parts' casts, but for
// rounding.
bool converts_sum(const Graph& graph, const Effects& effects, NodeId sum, DType to);

}  // namespace epweave
