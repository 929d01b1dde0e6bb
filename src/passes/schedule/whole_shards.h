// A step as the ranks run it whose shards are whole. Where parameters are cut unevenly
// (analysis/uneven_shard.h), the last ranks hold fewer rows than the others, or none: their steps
// have other extents, and so other prices. Decisions by the clock must be the same on all ranks, so
// all of them take the prices of a whole shard.
//
//   given    %p: f32[84, 8]      %g = pad(%p, [0, 0, 0, 2]): f32[86, 8]      %s = slice(%r: f32[86, 8], 0, 0, 84)
//   whole    %p: f32[86, 8]      %g = pad(%p, [0, 0, 0, 0]): f32[86, 8]      %s = slice(%r: f32[86, 8], 0, 0, 86)
//
// A shard is padded to a whole one in front of its gather, on ranks with whole shards by nothing.
// Behind the reduce-scatter of its gradient, %r, what was padding is cut off by a view, which ranks
// with whole shards have not got.
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"

namespace epweave {

struct WholeShards {
  std::optional<Graph> graph;  // the same nodes in the same order; none where the given step is that
  std::size_t uneven_inputs = 0;
  // Why there is no such step, or it cannot be known; it names an input.
  std::optional<std::string> problem;
};
WholeShards find_whole_shards(const Graph& graph);

// Views that cut off what was padding of a gradient's shard.
IdSet<NodeId> find_padding_cuts(const Graph& graph);

}  // namespace epweave
