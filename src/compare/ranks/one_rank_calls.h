// Calls of a graph that all ranks run, which are right on one rank alone.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

struct OneRankCall {
  NodeId node;        // of the step; of what a nested graph does, the call that runs it
  std::string value;  // what is one rank's: a group, a split table
  std::string why;
};

// An op without a row in the op table that takes a group by its name: the group is called otherwise
// on other ranks, and nothing says which argument to change. An exchange whose tables are numbers
// that differ by member: all ranks have the same tables, so what one sends is not what the other
// expects. Ring attention, where each rank sends to the next, is traced so.
std::vector<OneRankCall> find_one_rank_calls(const Graph& graph);

}  // namespace epweave
