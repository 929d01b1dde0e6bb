// Types of calls that a graph does not record, as its ops' rules give them:
//
//   %a = neg(%x: f32[4])  ->  %a = neg(%x: f32[4]) : f32[4]
//
// A check that compares types has nothing to compare where none is recorded, and what a file leaves
// out must not decide what is checked.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace epweave {

// Of the step. None where nothing is missing that follows from what is there.
std::optional<Graph> write_missing_types(const Graph& graph);

}  // namespace epweave
