#include "analysis/missing_types.h"

#include <algorithm>

#include "ir/facts.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

bool lacks_type(const Node& node) {
  return node.kind == NodeKind::kCall && !node.type && has_type_rule(node);
}

// None where the arguments cannot be typed; `verify` says so.
TypeId find_type(Facts& facts, const Graph& graph, const Node& node) {
  try {
    return infer_type(facts, graph, graph.step(), node);
  } catch (const TypeMismatch&) {
    return {};
  }
}

}  // namespace

std::optional<Graph> write_missing_types(const Graph& graph) {
  const Body& step = graph.step();
  if (std::ranges::none_of(step.order, [&](NodeId id) { return lacks_type(step.nodes[id]); })) return {};
  std::optional<Graph> result;
  Facts facts(graph);
  for (NodeId id : step.order) {
    if (!lacks_type(step.nodes[id])) continue;
    const Graph& typed = result ? *result : graph;
    const TypeId type = find_type(facts, typed, typed.step().nodes[id]);
    if (!type) continue;
    if (!result) result = graph;
    result->bodies.front().nodes[id].type = type;
  }
  return result;
}

}  // namespace epweave
