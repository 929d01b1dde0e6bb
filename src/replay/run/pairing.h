// Which nodes of a rewritten graph stand for which of the original, by provenance (check.h).
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace epweave::replay {

// B's nodes that stand for one node of A.
struct Group {
  NodeId whole;                // of A
  std::vector<NodeId> values;  // of B: one, or one per part
  bool is_parts = false;
  bool is_chain = false;   // all parts write one memory: each goes on from the one before
  bool is_copied = false;  // cut off the whole, or joined of its parts; not made by its code
};

// Where the provenance of both graphs names a graph before them, a node that is all of one of its
// nodes, and joins no parts, stands for A's node of the same name that is all of it, too.
// In the order of B. Counts B's nodes that have no counterpart.
std::vector<Group> pair_nodes(const Graph& a, const Graph& b, std::uint64_t& unpaired);

// Two graphs, and which of their nodes stand for each other.
struct PairedGraphs {
  PairedGraphs(const Graph& graph_a, const Graph& graph_b)
      : a(graph_a), b(graph_b), groups(pair_nodes(graph_a, graph_b, unpaired)) {}
  const Graph& a;
  const Graph& b;
  std::uint64_t unpaired = 0;  // B's nodes without a counterpart
  std::vector<Group> groups;
};

// Of nodes whose storage some node writes, so that it holds other values at other times.
struct WrittenStorage {
  IdSet<NodeId> all;
  IdSet<NodeId>
      views;  // those that only look at it: what a view shows where it stands, nobody need have read
};
WrittenStorage find_written_storage(const Graph& graph);

}  // namespace epweave::replay
