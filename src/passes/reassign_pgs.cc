#include "passes/reassign_pgs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/collectives.h"
#include "analysis/users.h"
#include "base/counted.h"
#include "ops/op.h"
#include "passes/extra_group.h"
#include "passes/record.h"

namespace epweave {
namespace {

// Whether the value comes from an input of the step by calls with one operand each.
bool comes_from_input(const Body& body, const NodeLists& inputs, NodeId id) {
  while (body.nodes[id].kind == NodeKind::kCall && inputs[id].size() == 1) id = inputs[id].front();
  return body.nodes[id].kind == NodeKind::kPlaceholder;
}

// The gathers of parameters that may move, by group; in the order of the groups' first such gather.
struct Gathers {
  std::vector<std::pair<Arg, std::vector<NodeId>>> by_group;
  bool are_looked_up = false;
};

Gathers find_gathers(const Graph& graph) {
  static const OpInfo* const gather = find_op("_c10d_functional.all_gather_into_tensor.default");
  static constexpr std::string_view kMoved = "fsdp_extra";
  const Body& body = graph.step();
  const NodeLists inputs = list_inputs(*graph.context, body);
  Gathers gathers;
  std::map<StringId, std::size_t> index;
  for (const Launch& launch : find_launches(*graph.context, body)) {
    const Node& node = body.nodes[launch.node];
    const auto args = graph.context->args[node.args];
    if (node.op != gather || args.empty() || !args[0].is_node()) continue;
    if (!comes_from_input(body, inputs, args[0].as_node())) continue;
    const Arg group = named_group(graph, launch.group);
    if (group.is_node()) {
      gathers.are_looked_up = true;
      continue;
    }
    const StringId name = group.as_name();
    const bool is_moved = std::any_of(graph.groups.begin(), graph.groups.end(), [&](const ProcessGroup& g) {
      return g.name == name && g.split_from && graph.text(g.description) == kMoved;
    });
    if (is_moved) continue;
    const auto [at, is_new] = index.try_emplace(name, gathers.by_group.size());
    if (is_new) gathers.by_group.push_back({group, {}});
    gathers.by_group[at->second].second.push_back(launch.node);
  }
  return gathers;
}

}  // namespace

PassResult reassign_pgs(const Graph& graph) {
  PassResult result{graph};
  const StringId pass = graph.intern("reassign-pgs");
  const Gathers gathers = find_gathers(graph);
  for (const auto& [group, launches] : gathers.by_group) {
    const Node& first = graph.step().nodes[launches.front()];
    const ProcessGroup source = find_group(graph, "reassign-pgs", first, group.as_name());
    const StringId extra =
        provide_extra_group(result.graph, source, {.description = "fsdp_extra", .priority = {}});
    const std::string change =
        fmt::format("process group {} -> {}", graph.text(source.name), graph.text(extra));
    const StringId reason = graph.intern(change);
    for (NodeId id : launches) {
      Node& node = result.graph.step().nodes[id];
      set_group(*graph.context, node, extra);
      record_specialized(*graph.context, node, pass, reason);
    }
    result.notes.push_back(fmt::format("{} for {}", change, counted(launches.size(), "parameter gather")));
  }
  if (gathers.are_looked_up)
    result.notes.push_back(
        "parameter gathers whose process group is looked up at run time and not recorded stay on it");
  return result;
}

}  // namespace epweave
