#include "passes/isolate_ep_pg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/collectives.h"
#include "ops/op.h"
#include "passes/extra_group.h"
#include "passes/record.h"

namespace epweave {
namespace {

bool is_ep_exchange(const Node& node) {
  static const OpInfo* const all_to_all = find_op("_c10d_functional.all_to_all_single.default");
  const EpLabels& ep = node.ep;
  return node.op == all_to_all &&
         (ep.ep || ep.token_exchange || ep.token_count_exchange || ep.token_count_sync);
}

// What is launched on one group.
struct GroupUse {
  Arg group;
  std::vector<NodeId> exchanges;
  NodeId other;  // the first launch that is no token exchange
};

// In order of their first launch.
std::vector<GroupUse> list_group_uses(const Graph& graph) {
  std::vector<GroupUse> uses;
  std::map<std::pair<ArgKind, std::uint64_t>, std::size_t> index;
  const Body& body = graph.step();
  for (const Launch& launch : find_launches(*graph.context, body)) {
    const auto [at, is_new] = index.try_emplace({launch.group.kind(), launch.group.bits()}, uses.size());
    if (is_new) uses.push_back({launch.group, {}, {}});
    GroupUse& use = uses[at->second];
    if (is_ep_exchange(body.nodes[launch.node])) {
      use.exchanges.push_back(launch.node);
    } else if (!use.other) {
      use.other = launch.node;
    }
  }
  return uses;
}

}  // namespace

namespace {

constexpr std::string_view kTokens = "ep_extra", kCounts = "ep_counts";

bool is_described(const Graph& graph, Arg group, std::string_view description) {
  return !group.is_node() && std::ranges::any_of(graph.groups, [&](const ProcessGroup& known) {
    return known.name == group.as_name() && graph.text(known.description) == description;
  });
}

class Isolation {
 public:
  Isolation(const Graph& graph, PassResult& result) : graph_(graph), result_(result) {}

  // Gives the exchanges, which share their group with `other`, a group of their own.
  void move(const GroupUse& use, std::span<const NodeId> exchanges, NodeId other,
            std::string_view description) {
    if (exchanges.empty()) return;
    const std::string_view source = name_of_group(*graph_.context, graph_.step(), use.group);
    const Node& first = graph_.step().nodes[exchanges.front()];
    const std::string_view also = graph_.text(graph_.step().nodes[other].name);
    if (!use.group.is(ArgKind::kText) && !use.group.is(ArgKind::kProcessGroup))
      throw PassError(
          "isolate-ep-pg.group",
          fmt::format(
              "token exchanges share the process group that {} looks up with {}; a group that is looked up "
              "at run time cannot be split here",
              source, also),
          site_of(graph_, first), "leave isolate-ep-pg out, or trace the graph for one rank");
    const StringId extra =
        provide_extra_group(result_.graph, find_group(graph_, "isolate-ep-pg", first, use.group.as_name()),
                            {.description = description, .priority = "high"});
    const StringId reason = graph_.intern(fmt::format("process group {} -> {}", source, graph_.text(extra)));
    for (NodeId id : exchanges) {
      Node& node = result_.graph.step().nodes[id];
      set_group(*graph_.context, node, extra);
      record_specialized(*graph_.context, node, graph_.intern("isolate-ep-pg"), reason);
    }
    result_.notes.push_back(fmt::format("{} exchange{} moved from process group {}, which {} uses too, to {}",
                                        exchanges.size(), exchanges.size() == 1 ? "" : "s", source, also,
                                        graph_.text(extra)));
  }

 private:
  const Graph& graph_;
  PassResult& result_;
};

}  // namespace

PassResult isolate_ep_pg(const Graph& graph, CountExchanges counts) {
  PassResult result{graph};
  Isolation isolation(graph, result);
  bool are_looked_up = false;
  for (const GroupUse& use : list_group_uses(graph)) {
    if (use.exchanges.empty()) continue;
    std::vector<NodeId> tokens, numbers;
    for (NodeId id : use.exchanges) {
      const bool is_apart = counts == CountExchanges::kOwn && graph.step().nodes[id].ep.token_count_exchange;
      (is_apart ? numbers : tokens).push_back(id);
    }
    if (is_described(graph, use.group, kCounts)) numbers.clear();
    are_looked_up |= use.group.is_node();
    if (const NodeId other = !tokens.empty() ? tokens.front() : use.other)
      isolation.move(use, numbers, other, kCounts);
    if (use.other) isolation.move(use, tokens, use.other, kTokens);
  }
  if (are_looked_up && result.notes.empty())
    result.notes.push_back(
        "the exchanges' process group is looked up at run time, in a mesh axis that no other collective "
        "names: left as "
        "it is");
  return result;
}

}  // namespace epweave
