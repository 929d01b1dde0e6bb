// What a sort's arguments say.
//
//   argsort(x, -1, descending=True)      of dimension 1 of two, downwards
#pragma once

#include <cstddef>

#include "ir/graph.h"

namespace epweave {

// `sort` is a call of the family kSort. Whether it is known to order upwards.
bool sorts_upwards(const Context& context, const Node& sort);
// The dimension that a sort of a tensor of `rank` dimensions sorts, from 0; below 0: none (rank 0).
int sorted_dimension(const Context& context, const Node& sort, std::size_t rank);

}  // namespace epweave
