// What differs in the facts of whole graphs: symbols, process groups, roles of inputs and outputs,
// passes, info.
//
//   symbol u0 hint=1024      only in A: removed      symbol u24 range=[0, 512]      only in B: added
#pragma once

#include <vector>

#include "compare/diff/diff.h"

namespace epweave {

// Rows are compared by name, inputs, outputs and passes by position. `names` and `metadata` and
// `provenance` that do not count are left out.
std::vector<TableDiff> diff_tables(const Graph& a, const Graph& b, const DiffOptions& options);

}  // namespace epweave
