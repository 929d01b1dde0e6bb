// A step as the ranks run it whose shards are whole. Where parameters are cut unevenly
// (analysis/uneven_shard.h), the last ranks hold fewer rows than the others, or none: their steps
// have other extents, and so other prices. Decisions by the clock must be the same on all ranks, so
// all of them take the prices of a whole shard.
//
//   given   %p: f32[84]   %g = pad(%p, [0, 2]): f32[86]   %s = slice(%r: f32[86], 0, 0, 84)
//   whole   %p: f32[86]   %g = pad(%p, [0, 0]): f32[86]   %s = slice(%r: f32[86], 0, 0)
//
// torch pads a shard to a whole one in front of its gather, and pieces of its gradient to whole
// ones in front of its reduce-scatter: those that are whole by nothing, which the gradient shows,
// or not at all. Where it is not shown, a pad of a shard is a view of it here. Behind the
// reduce-scatter, %r, a rank with a short shard cuts the padding off: a view that ranks with whole
// shards have not got.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/graph.h"

namespace epweave {

struct WholeShards {
  std::optional<Graph> graph;  // the same nodes in the same order; none where the given step is that
  // Views that cut off what was padding of a gradient's shard, and pads that other ranks have not
  // got.
  IdSet<NodeId> padding;
  std::size_t uneven_inputs = 0;
  // Why that step is not known, on any rank; it names an input.
  std::optional<std::string> problem;
  // That, or why ranks may have other nodes in front of gathers: then what is written for them is
  // not the same everywhere, only their order.
  std::optional<std::string> merge_problem;
};
// Throws PassError schedule.uneven-shard where a call behind a short shard has no whole form, or
// nothing pads it though other ranks need not pad: ranks with whole shards cannot see that, and
// decide by the clock.
WholeShards find_whole_shards(const Graph& graph);

}  // namespace epweave
