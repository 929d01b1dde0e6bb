// Rows of a whole against rows that parts have in orders of their own (those of the tokens of each
// expert).
//
//   whole   [[0, 1], [4, 4], [2, 2]]        parts   [[4.1, 4]], [[2, 2], [0, 1]]        bounds 0.2: within
#pragma once

#include <cstddef>
#include <vector>

#include "replay/check/bound_comparison.h"

namespace epweave::replay {

// Within where each row of the parts, along dimension `dim`, is within the bounds of a row of the
// whole, another for each: such a matching is found if there is one. There are as many rows in all
// parts as in the whole.
BoundComparison match_rows(const BoundedValue& whole, const std::vector<BoundedValue>& parts,
                           std::size_t dim);

}  // namespace epweave::replay
