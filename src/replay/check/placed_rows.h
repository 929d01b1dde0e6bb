// Which values of A are made of rows that ranks got by the places where they lie: by equal shares,
// or by a reduce-scatter. Of a part a rank gets other rows than of the whole, until they are sent
// back.
//
//   all_to_all_single(%x, [], [], "g")    ranks [0, 1], %x has rows 0 .. 7: rank 0 gets rows 0 .. 3 of each rank;
//                                         of two parts of %x rows 0, 1 and 4, 5
#pragma once

#include "ir/graph.h"
#include "replay/run/pairing.h"

namespace epweave::replay {

// Those of which B has parts.
IdSet<NodeId> find_placed_rows(const PairedGraphs& graphs);

}  // namespace epweave::replay
