// Facts of one rank in a graph that all ranks run: what verify --ranks says of one graph, and what
// keeps it from being an artifact or a generalisation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/rank_literals.h"
#include "compare/ranks/rank_program.h"
#include "compare/ranks/verify_ranks.h"
#include "ir/graph.h"

namespace epweave::cli {

// Meshes, groups and collectives along a wrong axis, and numbers that are one rank's where each
// needs its own; where there are none, of the graph as each rank runs it, numbers that are not that
// rank's. What ranks run does not follow from wrong meshes: then these are all that is said.
// `visit`: gets the graph of each rank, where these are made.
using VisitRank = std::function<void(const Graph& own, std::uint32_t rank)>;
std::vector<RankViolation> find_wrong_numbers(const Graph& graph, const RankLiterals& literals,
                                              const VisitRank& visit = {});

// A graph that all ranks run, as each of them runs it.
struct SharedProgram {
  std::vector<RankViolation> wrong;  // find_wrong_numbers
  std::vector<RankProgram> ranks;    // none where axes are wrong
};
SharedProgram read_shared_program(const Graph& graph, const RankLiterals& literals);

// What one rank runs, of several whose graphs are given. In a graph that specialize made, the
// recorded tables of exchanges are those of the rank that was traced, not of the rank it is for.
RankProgram read_own_program(const Graph& graph);

// "rank 1 %ge: 0 is not this rank's; it must be 8 * c_tp = 8 (..)"
std::string print_wrong_number(const RankViolation& wrong);

// Whether ranks run different graphs: the graph says that it is for all, and computes their places
// or lists their groups.
bool differs_by_rank(const Graph& graph);

}  // namespace epweave::cli
