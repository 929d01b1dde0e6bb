// Numbers in a graph that must follow the rank's place in a mesh: offsets of shards that code read
// in Python while it was traced, so that one rank's number stands in the graph.
//
//   %w = gathered rows of tok_embeddings.weight : bf16[1024, 256]   of 2048, the rest is on other ranks of axis tp
//   %in = bitwise_and(ge(%ids, 0), lt(%ids, 1024))      0 must be 1024 * c_tp, 1024 must be 1024 + 1024 * c_tp
//   %i = clamp(sub(%ids, 0), 0, 1023)                   0 must be 1024 * c_tp
//   %e = embedding(%w, %i)
//
// Proved are: a shift of ids that come from the step's inputs and then choose positions along a
// dimension that holds a shard of a parameter's (of the table that is read, or of a value that goes
// with it place by place, as logits do); and the bounds of that shard (analysis/shard_bounds.h).
// Which dimensions are shards says analysis/sharded_dims.h. Where two axes of the mesh could be the
// one that is left, the number is one rank's all the same, and nothing says which of the two it
// follows.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "analysis/sharded_dims.h"
#include "ir/graph.h"

namespace epweave {

struct RankLiteral {
  NodeId node;
  std::uint32_t argument = 0;          // position
  Arg value;                           // what stands there: a number, or the node that computes it
  std::vector<RankAxis> axes;          // of the mesh: one, or those of which it may be any; none
                                       // where only the table's own rows are known
  std::int64_t scale = 0, offset = 0;  // it must be offset + scale * coordinate
  bool is_proved = false;              // else it only looks like one
  bool is_missing = false;             // no number stands there: the ids are not shifted
  bool is_shared = false;              // the comparison serves something else, too
  std::uint32_t lookup = 0;            // of those proved: literals of one follow one axis

  // By the first axis.
  std::int64_t at(std::uint32_t rank) const { return offset + scale * axes.front().coordinate(rank); }
  // By each axis that it may be along.
  std::set<std::int64_t> values_at(std::uint32_t rank) const;
};

// "1024 + 1024 * c_tp"; of several axes "8 * c_dp_replicate or 8 * c_tp"; of none "an offset of a
// shard of 8 rows"
std::string print_expression(const Graph& graph, const RankLiteral& literal);
// "1024", or "0 or 1024"
std::string print_values(const RankLiteral& literal, std::uint32_t rank);

// Of the step, in the order of its nodes. `rank` is the one whose graph it is: what it must be
// there decides between the bounds of a shard, and what looks like an offset.
struct RankLiterals {
  std::vector<RankLiteral> proved;
  // Other numbers that are bounds or shifts of whole numbers by a shard's extents; or of ids by the
  // rows of the table that they are looked up in, whatever is recorded of that.
  std::vector<RankLiteral> similar;
};
RankLiterals find_rank_literals(const Graph& graph, std::uint32_t rank);

// What a step knows of shards, for the two graphs into which it is split (partition/halves.h): each
// shows a part of it only. A shard is [places here, of how many, [[axis, stride, extent], ..]].
struct SplitShards {
  // Of saved values, as entry `shards` of the role of backward's input, by dimension:
  //   more{shards=[None, [1024, 2048, [["tp", 1, 2]]]]}
  SideTable<NodeId, std::optional<Arg>> values;
  // Of saved values that are places of a shard, in which backward looks them up, as entry `places`
  // of the role of forward's output.
  SideTable<NodeId, std::optional<Arg>> places;
  // Of embeddings' tables: info `sharded_tables` of backward, [[module, shard], ..].
  std::optional<Arg> tables;
};

// Nothing where the step looks nothing up in a shard.
SplitShards describe_shards(const Graph& graph, std::span<const NodeId> saved);

}  // namespace epweave
