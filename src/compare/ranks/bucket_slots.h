// The slots of bucketed gathers: a rank writes what it sends into a buffer of all ranks, in the
// place that it has in the group, and gathers in place.
//
//   %buffer = _pre_bucket_all_gather([%w], 4, bf16, [1], 2) : bf16[1024]     rank 2 of 4 writes elements 512 to 768
//   %own = slice(%buffer, 0, 512, 768)
//   all_gather_into_tensor_out(%own, 4, "dp", out=%buffer)
#pragma once

#include <vector>

#include "compare/ranks/verify_ranks.h"
#include "ir/graph.h"

namespace epweave {

// ranks-baked, of the graph that `rank` runs: slots that are another member's. Places that are no
// numbers are not judged.
std::vector<RankViolation> find_foreign_slots(const Graph& graph, std::uint32_t rank);

}  // namespace epweave
