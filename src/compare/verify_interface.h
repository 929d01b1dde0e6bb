// What a rewritten graph shares with the world: its inputs and outputs, the process groups, the nested graphs.
//
// Reports rewrite-inputs, rewrite-group and rewrite-nested.
#pragma once

#include "compare/rewrite_claims.h"

namespace epweave {

// The same inputs and outputs, with the same roles.
void check_inputs(RewriteClaims& claims);

// The same name is the same group.
void check_groups(RewriteClaims& claims);
// Null: the graph has no group of that name.
const ProcessGroup* find_group(const Graph& graph, StringId name);

// Nested graphs of A are in B, node by node in the same order.
void check_nested(RewriteClaims& claims, Numbers& numbers);

}  // namespace epweave
