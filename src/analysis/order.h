// Orders of a body: making one under constraints, and proving that one is legal.
//
// A new order is legal if it is a permutation of the old one in which every node stays behind what
// it takes values from, every pair that touches the same storage with a write stays in order
// (analysis/effects.h), random draws stay in order, the host still reads non-blocking copies only
// after something waited for them, and launches on one process group stay in order.
//
// About the last: a communicator pairs the n-th launch of one rank with the n-th of every other. A
// file is one rank's view of a program that all ranks run, and a pass decides by what the ranks
// share (order, labels, targets), so every rank gets the same new order and launches still pair up.
// What is guarded against is a reordering that nobody meant: launches keep their order per group
// except those that the caller names as free.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/users.h"

namespace epweave {

// What an order of a body must respect, found in one walk. Context and body must outlive it.
struct OrderFacts {
  Effects effects;
  NodeLists inputs;
  std::vector<Launch> launches;     // and what is launch and wait in one
  std::vector<NodeId> host_events;  // copies to the host, and calls that make it wait (analysis/host_copy.h)
};
OrderFacts find_order_facts(const Graph& graph, const Body& body, const Effects::Visit& also = {});

// The first pair that `after` has in the wrong order, or none: `after.order` is a legal permutation
// of the order of the body that the facts are about. The two bodies have the same nodes with the
// same inputs; other arguments may differ.
std::optional<OrderEdge> find_order_violation(const OrderFacts& before, const Body& after,
                                              const IdSet<NodeId>& free_launches);

// What a legal order keeps beside inputs and launches: the edges of effects, and those of the
// host's reads.
std::vector<OrderEdge> list_order_edges(const OrderFacts& facts);
// Edges with which an order has none of the host's reads too early: what makes the host wait behind
// each non-blocking copy to the host stays behind the copy, and in front of who reads it there.
// Other orders may be legal, too.
std::vector<OrderEdge> list_host_read_edges(const OrderFacts& facts);

struct StableOrder {
  std::vector<NodeId> order;
  IdVector<NodeId, NodeId> waited_for;  // of a delayed node: the dependence that was met last
};

// Edges that cannot all hold: each edge's `after` is the next one's `before`, and around. The
// shortest such (a run of requested edges counts once), or a short one where the body is too large
// to look everywhere.
using Cycle = std::vector<OrderEdge>;

// Delays nodes, never hoists: takes them in the old order; a node that misses a dependence waits
// for the last one it misses (inputs in argument order, then `edges` in the given order) and is
// looked at again as soon as that one is placed, before anything else. The output comes last.
// Linear.
//
//   order a b c d, edge d -> b      a c d b
std::variant<StableOrder, Cycle> sort_stably(const Body& body, const NodeLists& inputs,
                                             std::span<const OrderEdge> edges);

// "a -> b (takes its value) -> c (overwrites what it reads)".
std::string print_path(const Graph& graph, const Body& body, std::span<const OrderEdge> path);

}  // namespace epweave
