// Numbers of rows that count from the first row of a part are not those of the whole: what a sort gives back as
// order, and an arange over a part's own rows. They may pick, place and order rows of the part; computed with
// as data they would change the result.
//
//   order = sort(k)[1];  x[order]         legal: picks rows of the part
//   x * order.to(f32), order.sum()        refused: another number than in the whole
#pragma once

#include "analysis/placement.h"

namespace epweave {

// Throws PassError where a node makes floating-point numbers or a sum over the parts of such numbers.
void check_positions(const Graph& graph, const Placements& placements);

}  // namespace epweave
