// Types that are recorded of nodes, where a pass gave calls other operands.
//
//   %v = view(%x: f32[4]+8, [2, 2]) : f32[2, 2]+8      with %y: f32[4] in place of %x:  f32[2, 2]
#pragma once

#include <functional>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

// Gives what takes a value of `changed` the type that follows, and what takes that, in the order of
// the step; `changed` has all of them afterwards. `infer`: the type of a call, or none to leave it.
void retype_users(Graph& graph, Facts& facts, const std::function<TypeId(const Node&)>& infer,
                  IdSet<NodeId>& changed);

}  // namespace epweave
