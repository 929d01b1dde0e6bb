#include "cost/member_prices.h"

#include <algorithm>
#include <utility>

#include "analysis/world.h"
#include "cost/prices.h"
#include "ops/op.h"

namespace epweave {

namespace {

constexpr std::int64_t kMostRanks = 1 << 16;  // of whose groups each is looked at

// How a group's members lie on nodes.
struct Placement {
  std::uint32_t least = 0, nodes = 0;  // members on the node that has the fewest; nodes that have some

  // By price: fewer on a node, then more nodes.
  friend bool operator<(const Placement& a, const Placement& b) {
    return std::pair(a.least, b.nodes) < std::pair(b.least, a.nodes);
  }
  friend bool operator==(const Placement&, const Placement&) = default;
};

struct Placements {
  Placement dearest;
  bool is_uneven = false;

  void add(const std::vector<std::uint32_t>& ranks, const Cluster& cluster) {
    const MemberCounts members = count_members(ranks, cluster);
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [least, most] = std::minmax_element(members.begin(), members.end(), less);
    const Placement found{least->second, static_cast<std::uint32_t>(members.size())};
    is_uneven |= least->second != most->second || (dearest.nodes != 0 && !(found == dearest));
    if (dearest.nodes == 0 || found < dearest) dearest = found;
  }
};

// Of all ranks' groups of the row's name, where a rule says which these are.
Placements place_groups(const ProcessGroup& row, std::uint32_t world_size, const Cluster& cluster) {
  Placements placements;
  placements.add(row.ranks, cluster);
  if (world_size == 0) return placements;
  const auto rule = find_group_rule(row.ranks, world_size);
  if (!rule) return placements;
  for (std::uint32_t rank = 0; rank < world_size; ++rank)
    if (rule->coordinate(rank) == 0) placements.add(rule->members(rank), cluster);
  return placements;
}

// By group; takes the dearest placement as this rank's.
std::vector<std::uint8_t> find_uneven(const Graph& graph, StepModel& model) {
  std::vector<std::uint8_t> is_uneven(model.step_groups.size(), 0);
  const std::int64_t recorded = recorded_world_size(graph);
  const auto world_size = static_cast<std::uint32_t>(recorded > 0 && recorded <= kMostRanks ? recorded : 0);
  for (std::size_t i = 0; i < is_uneven.size(); ++i) {
    StepGroup& group = model.step_groups[i];
    const auto row = std::ranges::find(graph.groups, group.name,
                                       [&](const ProcessGroup& g) { return graph.text(g.name); });
    if (row == graph.groups.end() || row->ranks.empty()) continue;
    const Placements placements = place_groups(*row, world_size, model.cluster);
    is_uneven[i] = placements.is_uneven ? 1 : 0;
    group.local_ranks = placements.dearest.least;
    group.nodes = placements.dearest.nodes;
  }
  return is_uneven;
}

}  // namespace

std::size_t price_for_all_members(const Graph& graph, StepModel& model) {
  const std::vector<std::uint8_t> is_uneven = find_uneven(graph, model);
  for (Place place = 0; place < model.size(); ++place) {
    const std::uint32_t group = model.groups[place];
    if (!model.is_costed_launch(place) || group == kNoPlace || is_uneven[group] == 0) continue;
    if (is_measured(model.sources[place])) continue;  // by members and bytes, which are the same on all
    const OpFamily family = graph.step().nodes[model.nodes[place]].op->family;
    model.seconds[place] =
        collective_seconds(model.cluster, family, model.bytes[place], model.step_groups[group]);
  }
  return static_cast<std::size_t>(std::ranges::count(is_uneven, 1));
}

}  // namespace epweave
