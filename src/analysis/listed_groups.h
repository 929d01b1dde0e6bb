// What groups of the file's rank are on other ranks, as the traces said that a graph for all ranks
// was made of, where no rule says it.
//
//   info rank_groups = {"23": [["24", [1, 3]]]}
#pragma once

#include <vector>

#include "analysis/rank_view.h"
#include "ir/graph.h"

namespace epweave {

std::vector<GroupOnRank> list_recorded_groups(const Graph& graph, StringId group);

}  // namespace epweave
