// What a call of a collective says: which kind, in which group, and how large its result is.
//
//   %a = _c10d_functional.reduce_scatter_tensor.default(%g, "avg", 4, "33")   %g: f32[1024, 8]
//
// on a group of 4 members is a reduce_scatter by "avg" of [1024, 8] in group "33", with result
// [256, 8]. A coalesced call is one such collective for each tensor of its list, in that order.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ops/op.h"
#include "replay/collectives/transport.h"
#include "replay/run/call_values.h"

namespace epweave::replay {

// What the op does among ranks; none of an op that is no collective, or one that nothing executes.
std::optional<CollectiveKind> find_collective(const OpInfo& op);

// What it sends: one tensor, or those of its list. Throws KernelError if it has none.
std::vector<Tensor> list_operands(const BoundCall& bound);
// Throws KernelError if the group is not known by name.
const std::string& group_of(const OpInfo& op, const BoundCall& bound);
// What this rank contributes of an operand, but for its data and its name; `members`: of the group.
// Throws KernelError if the call gives another number of members.
Contribution read_contribution(const OpInfo& op, const BoundCall& bound, const Tensor& operand,
                               std::size_t members);
// Whether the graph alone says what every member contributes: extents and splits are numbers there,
// so ranks that run the same graph, and whose values are as recorded, launch the same.
bool is_known_from_graph(const Graph& graph, const Node& call);
// Throws KernelError if the operand cannot be divided, or a split is negative.
Extents result_sizes(const Contribution& part, std::size_t members);

}  // namespace epweave::replay
