// Calls that mean the same by their op's schema, in one form:
//
//   softmax(input=%x, dim=-1)  ->  softmax(%x, 1)          of a matrix %x
//   sum(%x, [0], keepdim=False)  ->  sum(%x, [0])
//   slice(%x, end=4)  ->  slice(%x, 0, None, 4)
//
// Parameters stand in the schema's order: by position, up to the last that is not its default;
// those that the schema wants by name, by name, and only what is no default. Dimensions of the
// first operand are counted from the front. A call that does not fit its schema, or needs a default
// that no argument can say, stays as it is; so does one that gives no tensor.
//
// Each such call computes what it did: what is proved of graphs in this form is true of the graphs.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace epweave {

// None where each call is in that form.
std::optional<Graph> write_in_schema_order(const Graph& graph);

}  // namespace epweave
