#include "passes/isolate_ep_pg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/collectives.h"
#include "base/counted.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "passes/extra_group.h"
#include "passes/record.h"

namespace epweave {
namespace {

bool is_ep_exchange(const Node& node) {
  const EpLabels& ep = node.ep;
  return has_family(node, OpFamily::kAllToAll) &&
         (ep.ep || ep.token_exchange || ep.token_count_exchange || ep.token_count_sync);
}

bool exchanges_counts(const Node& node) {
  return is_ep_exchange(node) && (node.ep.token_count_exchange || node.ep.token_count_sync);
}

// What is launched on one group.
struct GroupUse {
  Arg group;
  std::vector<NodeId> exchanges;
  NodeId other;  // the first launch that is none of the exchanges
};

// In order of their first launch.
std::vector<GroupUse> list_group_uses(const Graph& graph, bool (*is_exchange)(const Node&)) {
  std::vector<GroupUse> uses;
  std::map<std::pair<ArgKind, std::uint64_t>, std::size_t> index;
  const Body& body = graph.step();
  for (const Launch& launch : find_launches(*graph.context, body)) {
    const Arg group = named_group(graph, launch.group);
    const auto [at, is_new] = index.try_emplace({group.kind(), group.bits()}, uses.size());
    if (is_new) uses.push_back({group, {}, {}});
    GroupUse& use = uses[at->second];
    if (is_exchange(body.nodes[launch.node])) {
      use.exchanges.push_back(launch.node);
    } else if (!use.other) {
      use.other = launch.node;
    }
  }
  return uses;
}

// Which launches of a group that others use, too, get which group of their own.
struct Isolation {
  bool (*is_exchange)(const Node&);
  ExtraGroup extra;
};

// Of token counts, the group that the exchanges of tokens had before they were isolated.
StringId source_of(const Graph& graph, StringId name) {
  for (const ProcessGroup& group : graph.groups)
    if (group.name == name && group.split_from) return group.split_from;
  return name;
}

// Whether some exchange's group is looked up at run time.
bool isolate(PassResult& result, const Isolation& isolation) {
  const Graph& graph = result.graph;  // as it is rewritten
  const StringId pass = graph.intern("isolate-ep-pg");
  bool are_looked_up = false;
  for (const GroupUse& use : list_group_uses(graph, isolation.is_exchange)) {
    if (use.exchanges.empty()) continue;
    are_looked_up |= use.group.is_node();
    if (!use.other) continue;
    const std::string_view source = name_of_group(*graph.context, graph.step(), use.group);
    if (!use.group.is(ArgKind::kText) && !use.group.is(ArgKind::kProcessGroup))
      throw PassError(
          "isolate-ep-pg.group",
          fmt::format(
              "token exchanges share the process group that {} looks up with {}; which group that is, is not "
              "recorded",
              source, graph.text(graph.step().nodes[use.other].name)),
          site_of(graph, graph.step().nodes[use.exchanges.front()]),
          "export the graph with recorded values, or leave isolate-ep-pg out");
    const StringId extra =
        provide_extra_group(result.graph,
                            find_group(graph, "isolate-ep-pg", graph.step().nodes[use.exchanges.front()],
                                       source_of(graph, use.group.as_name())),
                            isolation.extra);
    const StringId reason = graph.intern(fmt::format("process group {} -> {}", source, graph.text(extra)));
    for (NodeId id : use.exchanges) {
      Node& node = result.graph.step().nodes[id];
      set_group(*graph.context, node, extra);
      record_specialized(*graph.context, node, pass, reason);
    }
    result.notes.push_back(fmt::format("{} moved from process group {}, which {} uses too, to {}",
                                       counted(use.exchanges.size(), "exchange"), source,
                                       graph.text(graph.step().nodes[use.other].name), graph.text(extra)));
  }
  return are_looked_up;
}

}  // namespace

PassResult isolate_ep_pg(const Graph& graph, CountGroup counts) {
  PassResult result{graph};
  bool are_looked_up = isolate(result, {is_ep_exchange, {.description = "ep_extra", .priority = "high"}});
  if (counts == CountGroup::kOwn)
    are_looked_up |= isolate(result, {exchanges_counts, {.description = "ep_counts", .priority = "high"}});
  if (are_looked_up && result.notes.empty())
    result.notes.push_back(
        "the exchanges' process group is looked up at run time, in a mesh axis that no other collective "
        "names: left as it is");
  return result;
}

}  // namespace epweave
