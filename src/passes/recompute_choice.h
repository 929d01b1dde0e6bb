// Which forward calls backward computes again, of those that `memory-policy` tagged
// (passes/recompute.h), and in front of which of its nodes.
//
//   place   0: h = relu(x)    1: s = silu(h)    2: y = mul(s, s)    ..    7: g = mul(%d, s)  bwd
//   tagged  h and s           copied: h and s, both in front of place 7
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/users.h"
#include "ir/graph.h"

namespace epweave {

// Who reads what in a step, and at which place of its order each node stands.
struct StepReads {
  explicit StepReads(const Graph& graph)
      : inputs(list_inputs(*graph.context, graph.step())),
        users(invert(inputs, graph.step().order)),
        positions(find_positions(graph.step(), graph.step().order)) {}

  NodeLists inputs, users;
  IdVector<NodeId, std::uint32_t> positions;
};

struct RecomputeChoice {
  struct Kept {
    NodeId id;
    std::string_view why;
  };

  bool is_copied(NodeId id) const { return target[id] != kNotExecuted; }

  std::string unused;                      // why nothing could be chosen; then the rest is empty
  std::vector<NodeId> copied;              // in the order of forward
  IdVector<NodeId, std::uint32_t> target;  // of what is copied: the place of the copy's first reader
  std::vector<Kept> kept;                  // tagged and needed, but not copied
};

// Throws PassError: recompute.random, recompute.regions, recompute.repeated.
RecomputeChoice choose_recomputed(const Graph& graph, const StepReads& reads);

}  // namespace epweave
