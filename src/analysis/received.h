// Behind a reduce-scatter: which nodes still show the shard that was received.
#pragma once

#include "analysis/collectives.h"
#include "ir/graph.h"
#include "ops/family.h"
#include "ops/op.h"

namespace epweave {

// Whether the call shows what its first operand received, or a part of it:
// waits, casts and views, parts of it, and sums over other ranks.
inline bool passes_received(const Node& node) {
  const OpFamily family = node.op->family;
  return is_wait(node) || keeps_numbers(family) || family == OpFamily::kElement ||
         family == OpFamily::kSplit || family == OpFamily::kSlice || family == OpFamily::kAllReduce;
}

}  // namespace epweave
