// Symbols that nodes mention, in types or arguments, though no operand brings them.
//
//   %n = _local_scalar_dense(%x) : SymInt(u4)                binds u4
//   %y = _to_copy(%w : f32[u8, 256]) : bf16[u4, 256]         needs %n, though it does not take it
//
// A half of a partition that has the node must have what binds the symbol: types of its inputs, or
// the binder.
#pragma once

#include <vector>

#include "analysis/users.h"
#include "ir/graph.h"

namespace epweave {

struct SymbolNeed {
  NodeId node;
  StringId symbol;
  NodeId binder;  // the call that computes the symbol's number, or the first input that has it
};

// In the order of the step, whose nodes' inputs are given.
std::vector<SymbolNeed> find_symbol_needs(const Graph& graph, const NodeLists& inputs);

}  // namespace epweave
