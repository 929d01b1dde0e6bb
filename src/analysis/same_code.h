// Whether two values may be one value computed twice where value numbering cannot see it: numbers
// read from a tensor by the host, and what is made of them, have a number of their own each time.
//
//   a = item(counts);  b = item(counts)                  may be the same
//   a = item(counts);  b = item(other)                   may not: two inputs of the graph are two values
//   a = sort(x);  b = sort(x, descending=True)           may not
#pragma once

#include "analysis/value_numbers.h"
#include "ir/graph.h"

namespace epweave {

// Whether the same code makes both from values with the same numbers.
bool may_be_same_value(const Graph& graph, const ValueNumbers& numbers, NodeId a, NodeId b);

}  // namespace epweave
