// The memory budget that the step's code asks for, by
// torch.autograd.graph.region_activation_memory_budget(0.5): PyTorch notes it on each call that the
// region covers.
//
//   %mm = aten.mm.default(%x, %w)      custom{_region_activation_memory_budget=0.5}
#pragma once

#include <optional>

#include "partition/joint.h"

namespace epweave {

// A share from 0 to 1; none: no call notes one. As in PyTorch, a graph has one: throws PassError
// partition.region-budget where two calls differ, or where a call of forward, or of a function in a
// nested graph, notes none. Those that a pass added do not count.
std::optional<double> find_region_budget(const Graph& graph, const Joint& joint);

}  // namespace epweave
