// reassign-pgs: gives the gathers of sharded parameters a process group of their own, so that they
// do not wait behind the reduce-scatters of gradients on the same group.
//
//   before  p = all_gather_into_tensor(%param, 4, "0")              g = reduce_scatter_tensor(.., "0")
//   after   p = all_gather_into_tensor(%param, 4, "0_fsdp_extra")   g = reduce_scatter_tensor(.., "0")
//           group 0_fsdp_extra ranks=[0, 1, 2, 3] "fsdp_extra" split_from=0
//
// A parameter's gather takes its operand from an input of the step through calls with one operand
// each (casts, views). Gathers of anything else (tensor parallelism) stay. Running it again changes
// nothing. Graphs that hold for every rank look their groups up in a mesh; what is recorded of a
// lookup says which row it is (passes/extra_group.h).
//
// Numerics: reorder (bitwise by construction).
#pragma once

#include "passes/pass.h"

namespace epweave {

PassResult reassign_pgs(const Graph& graph);

}  // namespace epweave
