// The meshes of the job, as recorded (info global_meshes), also those of some of the ranks only.
//
//   info global_meshes = {"dense": {"axes": ["fsdp", "tp"], "shape": [2, 2]}}
#pragma once

#include <vector>

#include "analysis/world.h"
#include "ir/graph.h"

namespace epweave {

std::vector<Mesh> read_global_meshes(const Graph& graph);

}  // namespace epweave
