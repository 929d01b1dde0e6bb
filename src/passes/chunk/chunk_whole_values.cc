#include "passes/chunk/chunk_whole_values.h"

#include "analysis/random_draws.h"
#include "ir/walk.h"
#include "ops/op.h"

namespace epweave {
namespace {

bool is_scalar(const Graph& graph, const Node& node) {
  return node.type && graph.context->types[node.type].kind == TypeKind::kScalar;
}

bool may_be_made_of_sizes(const Graph& graph, const Node& node) {
  if (node.op == nullptr || node.op->writes || draws_random(graph, node)) return false;
  return (node.extra == nullptr || node.extra->bindings.empty()) && node.op->cost != CostClass::kCollective &&
         node.op->cost != CostClass::kWait;
}

}  // namespace

bool takes_divided(const Graph& graph, const Placements& placements, NodeId id) {
  bool any = false;
  for_each_input(*graph.context, graph.step().nodes[id], [&](NodeId input) {
    any |= placements.seen_from(input, placements.region[id]).is_divided();
  });
  return any;
}

IdSet<NodeId> find_made_of_sizes(const Graph& graph, const Placements& placements) {
  IdSet<NodeId> found;
  const auto is_size = [&](NodeId input) {
    if (!placements.of(input).is_divided()) return true;
    return placements.region[input] ? found.contains(input) : is_scalar(graph, graph.step().nodes[input]);
  };
  for (const auto [id, node] : walk(graph.step())) {
    if (!is_in_parts(placements, id) || !may_be_made_of_sizes(graph, node)) continue;
    const bool reads_type = node.op->family == OpFamily::kSize || node.op->reads_types_only;
    bool only_sizes = true;
    for_each_input(*graph.context, node, [&](NodeId input) {
      only_sizes &= (reads_type && !placements.region[input]) || is_size(input);
    });
    if (only_sizes) found.insert(id);
  }
  return found;
}

bool is_size_arithmetic(const Graph& graph, const Placements& placements, NodeId id) {
  const Node& node = graph.step().nodes[id];
  return placements.of(id).is_local() && is_scalar(graph, node) &&
         graph.text(node.target).starts_with("operator.") && node.op != nullptr && !node.op->writes;
}

IdSet<NodeId> find_wanted_whole(const Graph& graph, const Placements& placements) {
  IdSet<NodeId> wanted;
  for (const auto& [id, node] : walk(graph.step())) {
    const NodeId user = id;  // which a lambda can capture
    const RegionId region = placements.region[user];
    const bool has_accesses = region && takes_divided(graph, placements, user);
    std::size_t leaf = 0;
    for_each_input(*graph.context, node, [&](NodeId input) {
      const Access::Kind access = has_accesses ? placements.access(user, leaf).kind : Access::Kind::kPart;
      ++leaf;
      if (!is_in_parts(placements, input) || access == Access::Kind::kAny) return;
      const bool takes_part = is_in_parts(placements, user) &&
                              (access == Access::Kind::kPart || access == Access::Kind::kPrefix) &&
                              placements.has_parts_for(input, region);
      if (!takes_part) wanted.insert(input);
    });
  }
  return wanted;
}

}  // namespace epweave
