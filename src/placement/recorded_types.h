// Whether what a file records of a call's result can be what the call makes. Placement rules take
// dimensions from recorded types, so a divided call whose record is wrong must not be looked at
// further.
//
//   %y = relu(%x : f32[u, 3]) : f32[3]      "recorded as f32[3], and its arguments give f32[u, 3]"
//
// Told apart are kinds, dtypes, ranks, plain numbers and multiples of the tokens. Other expressions
// may be equal where nothing shows it.
#pragma once

#include <string>

#include "ir/graph.h"
#include "ops/type_memo.h"
#include "placement/token_extent.h"

namespace epweave {

// What is wrong with the record of a call of the step, or empty.
std::string find_wrong_record(const Graph& graph, const Node& node, TokenExtents& tokens, TypeMemo& types);

}  // namespace epweave
