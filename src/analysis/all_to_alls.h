// All-to-alls that deal rows out among the ranks, whatever labels say that they carry: tokens or
// their counts. Those that are labelled as exchanges of tokens: analysis/ep_regions.h.
//
//   all_to_all_single(x, [s0, s1], [r0, r1], "ep")     such an exchange
//   all_to_all_single(x, [0, 512], [0, 512], "cp")     none: a rank passes all it has to one other,
//                                                      as attention in a ring does; without a label
//
// In a graph for all ranks the sizes depend on coordinates, and each counts as such an exchange.
#pragma once

#include "ir/graph.h"

namespace epweave {

bool is_row_exchange(const Context& context, const Node& node);

// Whether the step has one.
bool has_row_exchange(const Graph& graph);

}  // namespace epweave
