// Pieces that each rank takes at its own place, in a graph that all ranks run.
//
//   %y = slice(%x, 2, 8 * c, 8 + 8 * c)      each rank its own
//   %z = slice(%w, 2, 0, 8)                  rank 0's on all ranks
//
// A slice must follow a coordinate where it says that it stands for an element (element_of), and
// where the same line of the model's code, in another module alike (another layer), takes one piece
// more of that size, of as much, by a coordinate, and one less at that number. Elements begin at
// multiples of their size, and at the same in each layer.
#pragma once

#include <vector>

#include "compare/ranks/verify_ranks.h"
#include "ir/graph.h"

namespace epweave {

// ranks-baked: slices whose bounds are numbers, and elements whose bounds are other multiples of
// coordinates than they must be. Pieces that nothing reads are no rank's own. Nothing of a graph
// that is not for all ranks.
std::vector<RankViolation> find_baked_slices(const Graph& graph);

}  // namespace epweave
