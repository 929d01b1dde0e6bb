#include "cost/member_prices.h"

#include <algorithm>
#include <map>

#include "cost/prices.h"
#include "ops/op.h"

namespace epweave {

namespace {

// By group; takes the least number of members on a node as this rank's.
std::vector<std::uint8_t> find_uneven(const Graph& graph, StepModel& model) {
  std::vector<std::uint8_t> is_uneven(model.step_groups.size(), 0);
  for (std::size_t i = 0; i < is_uneven.size(); ++i) {
    StepGroup& group = model.step_groups[i];
    const auto row = std::ranges::find(graph.groups, group.name,
                                       [&](const ProcessGroup& g) { return graph.text(g.name); });
    if (row == graph.groups.end() || row->ranks.empty()) continue;
    const std::map<std::uint32_t, std::uint32_t> members = count_members(*row, model.cluster);
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [least, most] = std::minmax_element(members.begin(), members.end(), less);
    is_uneven[i] = least->second != most->second ? 1 : 0;
    group.local_ranks = least->second;
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
