// What is in a graph, counted: call targets, chunked regions, how much of it says where it comes
// from.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/ep_regions.h"
#include "ir/graph.h"

namespace epweave {

// One chunked region in one direction: the nodes that carry its name as torchtitan's chunk fields
// give it.
struct RegionStats {
  StringId root;
  bool backward = false;
  std::uint32_t parts = 0;
  std::uint32_t exchanges =
      0;  // dispatch and combine launches over all parts; count exchanges are not among them
};

struct GraphStats {
  std::size_t nodes = 0;  // of the step, as all counts here
  std::size_t placeholders = 0, calls = 0, attributes = 0;
  std::vector<std::pair<StringId, std::size_t>> targets;  // calls by target, sorted by its text
  std::vector<StringId> unknown_targets;                  // those without a row in the op table, sorted
  std::vector<RegionStats> regions;                       // in order of their first node
  std::size_t nodes_with_provenance = 0;

  double provenance_coverage() const;  // 0 for a graph that no pass has touched, 1 for every rewritten one
  std::size_t count_of(StringId target) const;
};

GraphStats count_graph(const Graph& graph);

// The number of parts of each chunked region, by the part numbers that its nodes carry.
class RegionParts {
 public:
  explicit RegionParts(const Graph& graph);
  // Of the node's region in the node's direction; 0 if the node is in none.
  std::uint32_t operator[](const Node& node) const;

 private:
  SideTable<StringId, std::uint32_t> forward_, backward_;
};

}  // namespace epweave
