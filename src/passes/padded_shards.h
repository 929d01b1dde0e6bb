// Inputs that are cut unevenly (analysis/uneven_shard.h), by the calls that pad them to whole
// shards in front of their gathers. Such pads are the same calls on all ranks: those that hold
// whole shards pad them by nothing.
//
//   %p: f32[84] of 256   %c = _to_copy(%p)   %g = pad(%c, [0, 2]): f32[86]     a whole shard is f32[86]
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/uneven_shard.h"
#include "ir/graph.h"

namespace epweave {

struct PaddedShards {
  std::vector<UnevenShard> shards;
  std::vector<std::vector<ExprId>> sizes;  // of each as a whole
  bool are_whole = true;                   // all of this rank's
  bool pads_whole_pieces = false;          // a piece of a gradient is padded by nothing
  std::optional<std::string> problem;      // why sizes are not known; it names an input
};
PaddedShards read_padded_shards(const Graph& graph);

}  // namespace epweave
