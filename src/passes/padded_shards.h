// Inputs that are cut unevenly (analysis/uneven_shard.h), by the calls that pad them to whole
// shards in front of their gathers. Where torch writes a pad that adds nothing, such pads are the
// same calls on all ranks; elsewhere those that hold whole shards gather them as they are.
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
  bool pads_all = false;                   // what is whole is padded, too: see below
  IdSet<NodeId> pads;                      // of shards
  // What takes a padded shard and is no gather: ranks without the pad see a use of the shard.
  std::optional<std::string> other_use;
  std::optional<std::string> problem;  // why sizes are not known; it names an input
};
// Whether other ranks pad whole shards must be seen on each rank, also where all shards are short.
// Gradients show it, which all ranks have whole: a piece that is padded by nothing, or a bucket
// that pads its pieces itself (the versions of torch that write one pad all shards).
PaddedShards read_padded_shards(const Graph& graph);

}  // namespace epweave
