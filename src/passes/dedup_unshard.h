// Gathers each sharded parameter once.
//
//     %c0 = _to_copy(%w); %g0 = all_gather_into_tensor(%c0, 4, "0"); %a0 = wait_tensor(%g0)
//     %c1 = _to_copy(%w); %g1 = all_gather_into_tensor(%c1, 4, "0"); %a1 = wait_tensor(%g1)      (gone)
//     %m = mm(%x, %a1)                                                             %m = mm(%x, %a0)
//
// An unshard chain starts at a user of an input and goes on while the node has one user and that
// user no other input of data (a group or mesh is none); a split whose pieces are all concatenated
// again is one step. It ends after the last gather and its wait, before trailing views. Chains of
// the same input that compute the same value are one after the pass: the one whose result is there
// first.
//
// A chain that recomputation rebuilt in backward is there on purpose, to free the gathered weight
// in between: it is never merged with one of forward. Nothing is merged where the parameter or a
// gathered value is written in place, or passed to an op that might write it. Nor are two of which
// the step returns both: its caller gets two tensors, and may write into one.
#pragma once

#include "ir/graph.h"

namespace epweave {

Graph dedup_unshard(const Graph& graph);

}  // namespace epweave
