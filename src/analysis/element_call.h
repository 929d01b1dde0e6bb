// The calls that tuples come from, seen from what takes their elements:
//
//   %t = split(%x, 4)   %l = getitem(%t, 0)   %y = add(%l, 1)     tuple_of(%l) = %t    tuple_of(%y): none
//   %p = f(%x)          %q = getitem(%p, 1)   %r = getitem(%q, 0) call_of(%r) = %p     call_of(%y) = %y
#pragma once

#include "base/id.h"
#include "ir/graph.h"

namespace epweave {

// The tuple, or the list, of which the node takes an element by `getitem`; none of other nodes.
NodeId tuple_of(const Context& context, const Node& node);
// What computes the tuple, or the list in a tuple, that the value is taken from; of no element the
// value itself.
NodeId call_of(const Context& context, const Body& body, NodeId id);

}  // namespace epweave
