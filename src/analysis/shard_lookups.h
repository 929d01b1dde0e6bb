// Where a step looks something up in a shard (analysis/sharded_dims.h).
//
//   %i = sub(%ids, 1024)      positions of the lookup; what shifts them
//   %e = embedding(%w, %i)    the lookup: %w holds 1024 of 2048 rows
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/sharded_dims.h"
#include "ir/graph.h"

namespace epweave {

// Positions along a dimension of a table.
struct ShardLookup {
  NodeId call, positions;
  ShardedDim shard;
};

// In a table of which nothing says that it is a shard.
struct PlainLookup {
  NodeId positions;
  std::int64_t rows = 0;
};

// The value whose elements these are, moved or each changed in its place; or none.
NodeId source_of_ids(const Context& context, const Body& body, NodeId at);
// What shifts the ids before they are positions: behind what keeps each element in its place.
NodeId find_shift(const Context& context, const Body& body, NodeId at);

// Entries of the role of an output, and of a graph's info, that record what the other half of a
// step looks up.
inline constexpr std::string_view kPlacesKey = "places", kTablesKey = "sharded_tables";

class LookupFinder {
 public:
  LookupFinder(const Graph& graph, const ShardFinder& shards);
  const std::vector<ShardLookup>& all() const { return found_; }
  const std::vector<PlainLookup>& plain() const { return plain_; }
  // Of embeddings, by module.
  const std::vector<std::pair<StringId, ShardedDim>>& tables() const { return tables_; }

 private:
  // What the whole step looks up in its other half, and in which tables (SplitShards).
  void read_recorded(const Graph& graph);

  void visit(NodeId id, const Node& node);

  // The gradient of a table of that module with as many rows.
  void add_backward(NodeId id, const Node& node);

  const Context& context_;
  const Body& body_;
  const ShardFinder& shards_;
  std::vector<PlainLookup> plain_;
  std::vector<std::pair<StringId, ShardedDim>> tables_;
  std::vector<NodeId> backwards_;
  std::vector<ShardLookup> found_;
};

}  // namespace epweave
