// What only moves the elements of a sum over the parts runs once, on the sum:
//
//   by placement    %f = _to_copy(%g)     %s = split(%f, 3)    %p = constant_pad_nd(%s[i], ..)    each part's; then add, for each i
//   here            %f = _to_copy(%g)     each part's; then add
//                   %s = split(%f, 3)     %p = constant_pad_nd(%s[i], ..)                         once
//
// The elements that are added are the same, in the same order, so every bit is.
#pragma once

#include "placement/placement.h"

namespace epweave {

// Makes such nodes whole whose result no part takes. Linear in the nodes of regions.
void move_sums_once(const Graph& graph, Placements& placements);

}  // namespace epweave
