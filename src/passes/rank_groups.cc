#include "passes/rank_groups.h"

#include <utility>

namespace epweave {

RankGroups::RankGroups(const Graph& graph, const World& world, Rank rank) {
  for (const ProcessGroup& group : graph.groups) {
    auto here = group_on_rank(graph, world, group, rank);
    if (here && here->is_numbered) numbered_.emplace_back(graph.text(here->name));
    if (!here) {
      names_.emplace(group.name, StringId());
      continue;
    }
    if (!names_.emplace(group.name, here->name).second) continue;
    ProcessGroup& row = rows_.emplace_back(group);
    row.name = here->name;
    row.ranks = std::move(here->ranks);
  }
  for (ProcessGroup& row : rows_)
    if (row.split_from) row.split_from = find(row.split_from).value_or(row.split_from);
}

std::optional<StringId> RankGroups::find(StringId name) const {
  const auto found = names_.find(name);
  if (found == names_.end() || !found->second) return std::nullopt;
  return found->second;
}

}  // namespace epweave
