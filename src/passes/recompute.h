// Inserts what backward computes again: copies of forward calls that `memory-policy` tagged.
//
//   %silu = silu(%mm)           recompute=PREFER_RECOMPUTE    (gone, if only backward read it)
//   ...
//   %mul_3 = mul(%g, %silu)     bwd                           %silu_recomputed = silu(%mm)  bwd
//                                                             %mul_3 = mul(%g, %silu_recomputed)
//
// Backward of the layers begins behind the last node of the modules `loss` and `lm_head`. From
// there on, each backward call has what it reads of tagged values computed in front of it, unless
// an earlier one had: one copy of a value, in front of its first backward reader, in the order of
// forward. A copy reads copies where there are any. Functions of FlexAttention calls (get_attr of a
// nested graph) are copied with the call, other constants are shared. Originals that nothing reads
// any more go; elements of tuples move right behind them.
//
// Against torchtitan's pass:
// - A value that backward of the loss reads, too (tied embeddings, rotary tables), is copied in
//   front of that reader. torchtitan puts the copy behind it.
// - A call is left as it is, and its value kept, where the copy would compute something else: its
//   op is not known, it binds a symbol, or storage that it reads or makes is written between it and
//   the readers, unless that write is copied, too (zeros_like, then scatter_). So is one whose
//   metadata say partitioner_tag="must_be_in_forward".
//
// A copy's record is role `body`, part 0 of 1: all of its origin, once more.
#pragma once

#include "passes/pass.h"

namespace epweave {

PassResult recompute(const Graph& graph);

}  // namespace epweave
