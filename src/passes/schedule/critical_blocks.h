// Why an order takes as long as it does: its critical path, as blocks of nodes that a stream runs
// without a gap.
//
//   compute   [ a b c d ]            [ k l m ]      the path: a b c d | x y | k l m
//   group              [ x    y     ]               blocks: {a b c d}, {x y}, {k l m}
//
// An order can only get shorter where a block gets shorter in front of its last node, which the
// next block waits for, or behind its first: that is where a search should look.
#pragma once

#include <span>
#include <vector>

#include "passes/schedule/schedule_problem.h"

namespace epweave {

struct CriticalBlock {
  std::vector<Place> nodes;  // in the order in which they run
};

// Blocks from the last to the first.
std::vector<CriticalBlock> find_critical_blocks(const ScheduleProblem& problem, std::span<const Place> order);

// Nodes of the block that its last one needs, and that one.
std::vector<Place> list_what_ends(const ScheduleProblem& problem, const CriticalBlock& block);

}  // namespace epweave
