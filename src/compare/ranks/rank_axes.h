// Meshes and groups that are not those of the job, and collectives along another axis than their
// counterparts in backward: what one graph shows by itself.
//
//   info global_meshes = {"dense": {"axes": ["fsdp", "tp"], "shape": [2, 2]}}    ranks [[0, 1], [2, 3]]
//   %m = placeholder : =mesh(["tp", "fsdp"], [2, 2], [[0, 1], [2, 3]])           fsdp comes first
//   group 23 ranks=[0, 2] axes=[tp]                                              along tp rank 0 is with 1
//   %g = all_gather(%w, 2, "11") seq=6
//   %s = reduce_scatter(%d, 2, "23") bwd seq=6                                   %w's ranks, or %d's?
//
// A mesh or a group is judged where a mesh of the job has all axes that it names. Autograd gives a
// gather's gradient by a reduce-scatter on the gather's group, and the other way round, and an
// exchange's by an exchange; the tracer's number of the call (`seq`) says which belong together. So
// does a parameter's name: what gathers it, and what gives its gradient.
// Where one call has collectives along several axes, of which its gradient needs some, nothing is
// said. Of one all-reduce nothing says on which group it is to run: of three or more calls of one
// line in modules alike, one that does otherwise than most is named. Which ranks a mesh of some of
// the job's ranks has is not recorded: what may be along its axes is not judged.
#pragma once

#include <vector>

#include "compare/ranks/verify_ranks.h"
#include "ir/graph.h"

namespace epweave {

// ranks-axis, of the rank whose view the graph is. A group has no node.
std::vector<RankViolation> find_wrong_axes(const Graph& graph);

}  // namespace epweave
