// Where merged launches and waits stand: each hides under the module next to its own.
//
//   gathers            g0  w0 ..0..  g1  w1 ..1..      ->   g0  g1 w0 ..0..  g2 w1 ..1..
//   reduce-scatters    ..1.. r1 w1  ..0.. r0 w0        ->   ..1.. r1  ..0.. r0 w1  w0
//
// A gather moves in front of the wait for the one before it in its direction, with what it alone
// needs; a wait for a reduce-scatter behind the launch of the next, with what it alone feeds. A
// gather without one before it moves in front of the direction's first product, where it can.
#pragma once

#include <span>
#include <vector>

#include "analysis/order.h"
#include "passes/bucket/bucket_writer.h"

namespace epweave {

struct PrefetchOrder {
  std::vector<NodeId> order;
  std::vector<NodeId> moved;
};

// `scoped`: nodes of modules in the plan. Inputs and users are those of the merged step. What took
// a value that moved behind it may stand too early.
PrefetchOrder find_prefetch_order(const Graph& graph, std::span<const MergedLaunch> launches,
                                  const IdSet<NodeId>& scoped, const NodeLists& inputs,
                                  const NodeLists& users);

}  // namespace epweave
