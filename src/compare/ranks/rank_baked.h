// Numbers of one rank in a graph that others run: ranks-baked of verify_ranks.h.
#pragma once

#include <vector>

#include "analysis/rank_literals.h"
#include "compare/ranks/verify_ranks.h"

namespace epweave {

// Of a graph that all ranks run: a number stands where each rank needs its own.
std::vector<RankViolation> find_baked(const Graph& graph, const RankLiterals& literals, std::uint32_t rank);

// Of one rank's own graph: the number that stands there is not this rank's.
std::vector<RankViolation> find_foreign(const Graph& graph, const RankLiterals& literals, std::uint32_t rank);

// "%sub_4 (aten.sub.Tensor, loss, loss.py:12): 512 looks like 512 * c_tp"
std::string print_similar(const Graph& graph, const RankLiteral& literal);

}  // namespace epweave
