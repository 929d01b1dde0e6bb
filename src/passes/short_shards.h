// A rank's program with the extents of another rank. Where parameters are cut unevenly
// (analysis/uneven_shard.h), the last ranks hold less than a whole shard, or nothing. A rank with
// whole shards has all calls of theirs but those that cut padding off:
//
//   whole   %p: f32[86]   %g = pad(%p, [0, 0]): f32[86]   %w = wait(reduce_scatter(..)): f32[86]   output(%w)
//   last    %p: f32[84]   %g = pad(%p, [0, 2]): f32[86]   %w: f32[86]   %s = slice(%w, 0, 0, 84)   output(%s)
#pragma once

#include <string>

#include "ir/graph.h"
#include "ops/mesh_calls.h"

namespace epweave {

struct ShardChange {
  RankChange ranks;
  std::string pass, reason;  // of provenance and errors
};

// Throws PassError "PASS.uneven-shard" where what the rank holds of a parameter is not known, or is
// not what this rank holds and the graph says no form for that.
void take_shards_of(Graph& graph, const ShardChange& change);

}  // namespace epweave
