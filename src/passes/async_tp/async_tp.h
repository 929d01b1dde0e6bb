// Fuses collectives of tensor parallelism with the products beside them, into kernels over
// symmetric memory.
//
//   %g = all_gather_into_tensor(%x, 2, "11")          %f = fused_all_gather_matmul(%x, [%b, %c], 0, "11")
//   %w = wait_tensor(%g)                              %l = getitem(%f, 1)
//   %p = mm(%w, %b); %q = mm(%w, %c)                  %p' = getitem(%l, 0); %q' = getitem(%l, 1)
//
//   %p = mm(%a, %b)                                   %v' = fused_matmul_reduce_scatter(%a, %b, "sum", 0, "11")
//   %r = reduce_scatter_tensor(%p, "sum", 2, "11")
//   %v = wait_tensor(%r)
//
// Found by what flows where, not by the order of calls: from a wait through cuts and joins of the
// ranks' blocks (gathers along other dimensions), through reshapes that keep the last dimension, to
// the left factor of `mm`; and back from a reduce-scatter. Only groups of the given axes. What each
// call stands for: analysis/fused_products.h.
//
// A fused gather stands where the launch stood, and what its right factors are computed from is
// moved in front of it; a fused reduce-scatter stands where its launch stood. Nothing is fused that
// a write, a draw or another effect forbids, nor where a factor is computed from a collective of
// these groups in between, unless that is a gather with which nothing can be fused. Each collective
// of the groups that is not fused is in the notes, with what is missing.
//
// Refusals: "async-tp.axis" (no process group lies along it), "async-tp.type" (recorded types
// contradict each other).
//
// Numerics: sum-order (the kernels may add by the ranks' blocks); written out, a fused call gives
// the bits of the calls that it replaces.
#pragma once

#include <string>
#include <vector>

#include "passes/pass.h"

namespace epweave {

struct AsyncTpOptions {
  std::vector<std::string> axes = {"tp"};
};

PassResult async_tp(const Graph& graph, const AsyncTpOptions& options);

}  // namespace epweave
