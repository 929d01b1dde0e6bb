// Replaces what async-tp has found by calls of the fused kernels.
#pragma once

#include "ir/graph.h"
#include "passes/async_tp/find_fusions.h"

namespace epweave {

// `found` is of this graph. A fused gather stands where its launch stood, with what its right
// factors are computed from in front of it; a fused reduce-scatter stands where its launch stood.
// Throws PassError "async-tp.type" where recorded types contradict each other.
void write_fusions(Graph& graph, const Fusions& found);

}  // namespace epweave
