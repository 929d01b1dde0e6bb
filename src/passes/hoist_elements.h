// Moves each element of a tuple right behind the call that made the tuple, so that the other
// elements need not live.
//
//   %t = split(%x); %y = relu(%z); %a = getitem(%t, 0); %b = getitem(%t, 1)        %t, %a, %b, %y
//
// Elements are taken from the last to the first, as torch's raise_getitems does.
#pragma once

#include "ir/graph.h"

namespace epweave {

void hoist_elements(const Context& context, Body& body);

}  // namespace epweave
