// Nodes as `epweave print --json` gives them.
#pragma once

#include <span>

#include "common/report.h"
#include "cost/stats.h"
#include "ir/graph.h"

namespace epweave::cli {

// {dtype, shape, stride, device} of a tensor, {symbolic, py_type} of a symbolic scalar, a list for
// tuples and lists, {value} of anything else, null for none. Extents are numbers, symbolic ones
// text.
Json type_report(const Context& context, TypeId type);

// {name, op, target, inputs, module, direction, chunk, origin, type}
Json node_report(const Graph& graph, const Body& body, const Node& node, const RegionParts& parts);

// The nodes' names, in their order.
Json names_report(const Graph& graph, const Body& body, std::span<const NodeId> nodes);

}  // namespace epweave::cli
