// Another legal order of a body's nodes, from a seed: what a race or a missing dependence hides in
// one order, another may show. What is computed does not change.
//
//   a = mm(x, w);  b = relu(y);  c = add(a, b)        a b c, or b a c
//
// Legal is what analysis/order.h says: values before their users, accesses of one storage with a
// write in order, random draws, launches on one process group, and reads of the host behind what
// made it wait. All ranks get the same order, so launches pair up. A node goes at most kReach
// places ahead of the first one that is left, so that about as many values are kept as in the order
// of the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace epweave::replay {

inline constexpr std::size_t kReach = 64;

// Inputs come first and the output last, as in body.order. n log n.
std::vector<NodeId> shuffle_order(const Graph& graph, const Body& body, std::uint64_t seed);

}  // namespace epweave::replay
