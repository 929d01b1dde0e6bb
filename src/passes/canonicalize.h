// Removes aliases that change nothing, so that the same computation has one spelling.
//
//     %d = aten.detach.default(%x)                     uses of %d become %x
//     %v = aten.view.default(%x, [8, 16])              where %x is [8, 16]: uses become %x
//     %s = aten.slice.Tensor(%x, 0, 0, 8)              where %x has 8 rows: uses become %x
//     %b = aten.t.default(%a), %a = aten.t(%x)         uses of %b become %x; %a goes if it has no other use
//     %w = wait_tensor(%x), %v = wait_tensor(%x)       uses of %v become %w
//     %w = aten.view.default(%x, [128])                %w = aten.reshape.default(%x, [128])
//
// view, _unsafe_view and reshape are treated alike; sizes are compared as expressions under the
// graph's facts. Slices whose bounds are values of the graph are left alone. Every removed node is
// an alias of the whole of what replaces it, so in-place ops on either keep their meaning.
//
// Selective checkpointing saves what a collective gives before it is waited for, and backward waits
// once more. A wait for what a wait gave stays, though it repeats that one
// (analysis/repeated_waits.h): torchtitan waits so where the host reads token counts, and labels it
// (token_count_sync).
//
// Provenance: what replaces a node records it as merged; a view that became a reshape is
// specialized.
#pragma once

#include "ir/graph.h"

namespace epweave {

Graph canonicalize(const Graph& graph);

}  // namespace epweave
