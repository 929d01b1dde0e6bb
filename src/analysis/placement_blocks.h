// Rows of several ranks side by side, and cut apart again: what is divided is each rank's rows.
//
//   all_gather of [s, 4] by 2 ranks: [2*s, 4]      Split(0)                Split(0) in 2 blocks
//   split of [2*s, 4] in two: [s, 4], [s, 4]       Split(0) in 2 blocks    (Split(0), Split(0))
//   reduce_scatter of [2*s, 4] by 2 ranks: [s, 4]  Split(0) in 2 blocks    Split(0)
#pragma once

#include <optional>

#include "analysis/placement.h"

namespace epweave {

// Split rows `count` times one behind the other.
Placement join_blocks(ExprPool& pool, const Placement& rows, std::int64_t count);

// One of `count` equal runs of Split rows; none where a run is not whole blocks.
std::optional<Placement> cut_blocks(ExprPool& pool, const Placement& rows, std::int64_t count);

}  // namespace epweave
