// Frames: which row of the whole is row i of a value whose rows are in its part's own order?
//
// Rows that a part writes back into token order must be the rows of the same token slots, and a sum
// over rows must pair rows of the same slots; else a division by placement would change the result.
// A frame is a hash-consed term that says what row i of a value stands for. Values are numbered
// first (vn), so that a recomputed copy has the number of the original:
//
//   Split rows                                    the order of the tokens
//   sort(k), argsort(k), with all options         sort(vn of the call); of k in frame f: pick(f, vn of
//                                                 the call)
//   row-wise op on operands with rows             their common frame; rows of a constant have any
//   x[i], x in token order                        frame of i
//   x[i], x Local with frame f, i a permutation   pick(f, vn(i))
//   x[sort(o)], o the order of sort(k)            of x in sort(k) the order of the tokens; rows in
//                                                 another order are refused
//   index_put(zeros, [sort(o)], rows in f)        pick(f, vn(o)); of tokens' rows the order of o
//   index_put(new, [o], rows in sort(k)), o the   the order of the tokens, where o is as long as new
//     order of sort(k)                            memory has rows; rows in another order are refused
//   x[i], x a part's own sum                      none
//   index_put(dst, [i], rows in pick(f, vn(i)))   f
//   index_put_(new_empty, [i], rows in f)         place(f, vn(i)); picked by i again: f
//   reshape of n rows in f to c*n                 each(f, c); of c*n rows in each(f, c) to n: f;
//                                                 other regrouped rows have other neighbours in a
//                                                 part, and are refused
//   exchange of rows in f with splits (o, in)     exch(f, g, o, in) within group g, and
//                                                 exch(exch(f, g, o, in), g, in, o) = f; none where f is the
//                                                 order of the tokens
//
// The order that a sort gives is a permutation of its rows, and sorting that order gives the way
// back: of rows in pick(f, sort), f. Picking by 0, 1, .. leaves f. Another i is taken for a
// permutation where the same index fills a `new_empty` of as many rows: had it missed one, the
// original would read uninitialised memory. A value that was written in place has no frame by its
// old name.
//
// Sorted rows that are exchanged must go to the ranks that the whole sends them to
// (exchange_counts.h).
//
// Rows in two known frames that differ are not the same pairs in parts and are refused, unless both
// may be one frame computed twice where numbers cannot see it (same_code.h). So are rows that are
// written back or multiplied though they were picked by what may not be a permutation. Other rows
// without a frame, and sums over them, are open claims.
#pragma once

#include <string>
#include <vector>

#include "placement/placement.h"

namespace epweave {

struct FrameClaims {
  struct Open {
    NodeId node;
    std::string why;
    NodeId summed = {};  // whose rows are added up though nothing is known of them
  };
  std::size_t proved = 0;            // row writes and sums over rows whose operands have the same frame
  std::vector<NodeId> proved_at;     // these
  std::vector<NodeId> exchanges_at;  // of sorted rows that are sent to the ranks that the whole sends them to
  std::vector<Open> open;            // those for which it could not be shown
};

// Throws PassError where a node pairs rows in different orders, regroups rows, or sends a part's
// rows to other ranks than the whole.
FrameClaims prove_frames(const Graph& graph, const Placements& placements, Facts& facts);

}  // namespace epweave
