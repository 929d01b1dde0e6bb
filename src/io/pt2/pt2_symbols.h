// Which node binds which unbacked symbol: archives of torch.export do not say it.
//
//   %item = aten._local_scalar_dense.default(%x) : SymInt(u0)      binds u0, as its value
//   %nz = aten.nonzero.default(%x) : i64[u1, 2]                    binds u1, as the first of its sizes
#pragma once

#include "ir/graph.h"

namespace epweave {

// The first node in whose value a symbol stands alone binds it.
void bind_unbacked_symbols(Graph& graph);

}  // namespace epweave
