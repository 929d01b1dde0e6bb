// Rows of several ranks side by side, and cut apart again: what is divided is each rank's rows.
//
//   all_gather of [s, 4] by 2 ranks: [2*s, 4]      Split(0)                Split(0) in 2 blocks
//   split of [2*s, 4] in two: [s, 4], [s, 4]       Split(0) in 2 blocks    (Split(0), Split(0))
//   reduce_scatter of [2*s, 4] by 2 ranks: [s, 4]  Split(0) in 2 blocks    Split(0)
#pragma once

#include <optional>

#include "placement/placement.h"

namespace epweave {

// a / b, if that is a polynomial with whole coefficients.
std::optional<PolyId> whole_quotient(ExprPool& pool, PolyId a, PolyId b);

// How many times `rows` the extent is, if that is a number.
std::optional<std::int64_t> count_runs(Facts& facts, ExprId extent, ExprId rows);

// Split rows `count` times one behind the other. Rows that were all equal are so within each run
// only.
Placement join_blocks(ExprPool& pool, const Placement& rows, std::int64_t count);

// One of `count` equal runs of Split rows; none where a run is not whole blocks.
std::optional<Placement> cut_blocks(ExprPool& pool, const Placement& rows, std::int64_t count);

}  // namespace epweave
