// What is done again together, or not at all: a call, the elements of its tuple, and its wait.
//
//   %l = all_reduce_coalesced([%x], "sum", "35")
//   %e = getitem(%l, 0)                               done again where %l is
//   %w = wait_tensor(%e)                              where %e and %l are: a launch is waited for once
#pragma once

#include "analysis/collectives.h"
#include "analysis/element_call.h"

namespace epweave {

// Whether it holds of the value, of the call that it is an element of, and, where that is a wait,
// of its launch and of all between.
template <class Holds>  // bool(NodeId)
bool holds_with_call(const Context& context, const Body& body, NodeId id, const Holds& holds) {
  const NodeId call = call_of(context, body, id);
  if (!holds(id) || (call != id && !holds(call))) return false;
  const NodeId launch = find_waited_launch(context, body, call);
  bool is_held = !launch || holds(launch);
  if (launch)
    for_each_behind_launch(context, body, call, launch, [&](NodeId at) { is_held = is_held && holds(at); });
  return is_held;
}

}  // namespace epweave
