// The symbols of parts: each part counts its own rows, so that what a part binds no other part may
// name.
//
//   %n_chunk0 = _local_scalar_dense(...) : SymInt(u28)     %e_chunk1 : bf16[u28, 256]     part 1 names a
//   symbol of part 0
//
//   rewrite-symbol   a symbol is bound more often than in A, or a part's recorded type names what
//                    another
//   part binds
#pragma once

#include <vector>

#include "analysis/verify.h"
#include "ir/graph.h"

namespace epweave {

void check_part_symbols(const Graph& a, const Graph& b, std::vector<Violation>& out);

}  // namespace epweave
