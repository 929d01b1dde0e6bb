// Parameters whose shards are not all of one size, so that ranks run steps of other extents: torch
// cuts a dimension of 2,048 over 3 ranks into 683, 683 and 682, and the last rank slices its
// padding off.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

// One dimension of an input.
struct UnevenShard {
  NodeId input;
  StringId fqn;  // of the parameter
  std::size_t dim = 0;
  std::int64_t local = 0, global = 0;  // extents
};

// In the order of the inputs, for each the first such dimension; by the global shapes that the
// graph records of its parameters, by their meshes, and by how many ranks gather them: of 4 rows
// the ranks of a mesh [2, 3] hold 2, 2 and 0 where 3 gather them, not half.
std::vector<UnevenShard> find_uneven_shards(const Graph& graph);

// "%arg3_1 (layers.0.w, 683 of 2048)"
std::string describe(const Graph& graph, const UnevenShard& shard);

// "%arg3_1 (layers.0.w, 683 of 2048) and 4 more inputs are cut unevenly: ranks that hold shards of
// other sizes run another program". "" if none is.
std::string describe(const Graph& graph, const std::vector<UnevenShard>& shards);

}  // namespace epweave
