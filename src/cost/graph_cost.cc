#include "cost/graph_cost.h"

#include <map>

#include "analysis/collectives.h"
#include "analysis/module_path.h"

namespace epweave {
namespace {

class CostCounter {
 public:
  CostCounter(const Graph& graph, Extents& extents)
      : graph_(graph), context_(*graph.context), body_(graph.step()), costs_(graph, extents) {}

  GraphCost run() {
    const std::vector<Launch> launches = find_all_launches(context_, body_);
    std::size_t next = 0;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (node.kind != NodeKind::kCall) continue;
      ModuleCost& module = module_of(node);
      ++module.calls;
      const std::optional<Cost> known = costs_.cost_of(id);
      Count message = known ? Count(known->message) : std::nullopt;
      if (known && is_synchronous(node)) message = message_within(launches[next]);
      if (!message) ++cost_.not_counted;
      const Cost cost = known.value_or(Cost{});
      module.flops += cost.flops, cost_.flops += cost.flops;
      module.bytes += cost.bytes, cost_.bytes += cost.bytes;
      if (is_launch(node) || is_synchronous(node))
        count_launch(launches[next++], message.value_or(0), module);
    }
    return std::move(cost_);
  }

 private:
  ModuleCost& module_of(const Node& node) {
    const std::string row = generic_module(cut_module(graph_.text(node.module)));
    const auto [found, is_new] = modules_.try_emplace(row, cost_.modules.size());
    if (is_new) cost_.modules.push_back({.module = row});
    return cost_.modules[found->second];
  }

  Count message_within(const Launch& launch) {
    const ProcessGroup* group = graph_.find_group(recorded_group(context_, body_, launch.group));
    return group != nullptr ? costs_.message_within(launch.node, group->ranks.size()) : std::nullopt;
  }

  void count_launch(const Launch& launch, std::int64_t message, ModuleCost& module) {
    const Node& node = body_.nodes[launch.node];
    const std::string group(name_of_known_group(launch.group));
    const auto [found, is_new] = collectives_.try_emplace({group, node.target}, cost_.collectives.size());
    if (is_new) cost_.collectives.push_back({.group = group, .target = node.target});
    CollectiveCost& row = cost_.collectives[found->second];
    ++row.launches;
    ++module.collectives;
    row.bytes += message;
    module.collective_bytes += message;
  }
  // A group that a node looks up in a mesh has a name where the value was recorded.
  std::string_view name_of_known_group(Arg group) const {
    const StringId name = recorded_group(context_, body_, group);
    return name ? context_.text(name) : name_of_group(context_, body_, group);
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  CostModel costs_;
  GraphCost cost_;
  std::map<std::string, std::size_t> modules_;
  std::map<std::pair<std::string, StringId>, std::size_t> collectives_;
};

}  // namespace

GraphCost count_cost(const Graph& graph, Extents& extents) {
  return CostCounter(graph, extents).run();
}

}  // namespace epweave
