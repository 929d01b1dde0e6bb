// Frames: which row of the whole is row i of a value whose rows are in its part's own order?
//
// Rows that a part writes back into token order must be the rows of the same token slots, and a sum over rows
// must pair rows of the same slots; else a division by placement would change the result. A frame is a
// hash-consed term that says what row i of a Local value stands for. Values are numbered first, so that a
// recomputed copy has the number of the original:
//
//   sort(k)                                       sort(vn(k))
//   row-wise op on Local operands                 their common frame
//   x[i], x in token order                        frame of i
//   x[i], x Local with frame f, i a permutation   pick(f, vn(i))
//   index_put(dst, [i], rows in pick(f, vn(i)))   f
//   exchange of rows in f with splits (o, in)     exch(f, o, in), and exch(exch(f, o, in), in, o) = f
//
// i is taken for a permutation where the same index fills a `new_empty` of as many rows: had it missed one,
// the original would read uninitialised memory.
#pragma once

#include <string>
#include <vector>

#include "analysis/placement.h"

namespace epweave {

struct FrameClaims {
  struct Open {
    NodeId node;
    std::string why;
  };
  std::size_t proved = 0;  // row writes and sums over rows whose operands have the same frame
  std::vector<Open> open;  // those for which it could not be shown
};

FrameClaims prove_frames(const Graph& graph, const Placements& placements);

}  // namespace epweave
