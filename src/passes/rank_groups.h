// The process groups of a graph for all ranks, on one of them.
//
//   of rank 0   "1" = [0, 1]   "7" = [0, 2]       on rank 3   "1" = [2, 3]   "7" = [1, 3]
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/rank_view.h"
#include "ir/graph.h"

namespace epweave {

// The rank's rows of the group table, and the name of each of the file's groups on that rank.
class RankGroups {
 public:
  RankGroups(const Graph& graph, const World& world, Rank rank);

  // None: not in the table, or its members on that rank do not follow.
  std::optional<StringId> find(StringId name) const;
  bool is_listed(StringId name) const { return names_.contains(name); }
  const std::vector<ProcessGroup>& rows() const { return rows_; }
  // Groups that are named by torch's numbering, whose names on that rank are not recorded.
  const std::vector<std::string>& numbered() const { return numbered_; }

 private:
  std::map<StringId, StringId> names_;  // none: does not follow
  std::vector<ProcessGroup> rows_;
  std::vector<std::string> numbered_;
};

}  // namespace epweave
