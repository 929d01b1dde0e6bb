// The order that meets the phases and moves the fewest nodes.
//
//   order a b c d, phases {c} {a}        stable sort: b c a d (a delayed)        fewest moves: b c a d, too
//   order a b c d, phases {c, d} {a}     b c d a: one node moved, not two
//
// A node moves if it is not in the longest common subsequence of the two orders. For one region the
// result is exact: of all orders that keep data dependences, `edges` and the phases, none moves
// fewer nodes. Regions are taken one after the other, each with the phases of those before it as
// given; where they do not overlap, the sum is exact, too.
//
// How: give each node of the region's range the earliest and the latest phase it can execute in,
// from what it depends on and what depends on it. A set of nodes can keep its order if and only if
// none of its nodes would have to execute in a later phase than one behind it; the largest such set
// is the longest subsequence in which no latest phase is below an earliest phase before it. Sorting
// the range stably by phase gives the order. O(n log phases).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "passes/overlap_ep/overlap_ep_phases.h"

namespace epweave {

// No result: the phases contradict the graph or each other.
std::optional<std::vector<NodeId>> order_with_fewest_moves(const Body& body, const NodeLists& inputs,
                                                           std::span<const OrderEdge> edges,
                                                           std::span<const RegionSchedule> schedules);

// Nodes outside the longest common subsequence of the body's order and this one, in the order of
// their rows.
std::vector<NodeId> find_moved(const Body& before, const std::vector<NodeId>& order);

// How far nodes went: each by the number of staying nodes that it passed.
struct MoveCount {
  std::size_t moved = 0;
  std::uint64_t passed = 0;  // over all moved nodes
  std::uint32_t farthest = 0;
};

// `moved` as find_moved gives it.
MoveCount count_moves(const Body& body, const std::vector<NodeId>& after, const std::vector<NodeId>& moved);

}  // namespace epweave
