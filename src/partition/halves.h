// The two graphs of a partition.
//
//   F   all inputs of the joint graph -> its forward outputs, then the saved values
//   B   the inputs that it reads, the saved values (numbers first), and the seeds -> the gradients
//
// What backward computes again stands in B in front of its first reader there. Roles say how the
// halves are wired:
//
//   F's output, B's input    `saved`, with the value's name in the joint graph as `fqn` and `name`
//   B's input                `tangent`: a gradient that the caller gives, of ones for the loss; `name` is the seed's
//   B's input                as in the joint graph, for an input of the step
//   outputs                  as in the joint graph
//
// Calls of forward that write or have effects are F's. Nodes keep their names; their provenance
// names the joint graph's nodes, and of what B computes again it says `body`, part 0 of 1.
#pragma once

#include "partition/cut.h"

namespace epweave {

struct Halves {
  Graph forward, backward;
};

Halves split_joint(const Graph& graph, const Joint& joint, const Cut& cut);

}  // namespace epweave
