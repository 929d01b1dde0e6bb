// Parameters whose shards are not all of one size, so that ranks run steps of other extents: torch
// cuts a dimension of 2,048 over 3 ranks into 683, 683 and 682, and the last rank slices its
// padding off.
#pragma once

#include <optional>
#include <string>

#include "ir/graph.h"

namespace epweave {

// The first input of which that is so, as "%arg3_1 (layers.0.w, 683 of 2048)"; by the global shapes
// that the graph records of its parameters.
std::optional<std::string> find_uneven_shard(const Graph& graph);

}  // namespace epweave
