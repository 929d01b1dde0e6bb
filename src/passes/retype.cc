#include "passes/retype.h"

#include "ops/type_rules.h"

namespace epweave {

void retype_users(Graph& graph, Facts& facts, const std::function<TypeId(const Node&)>& infer,
                  IdSet<NodeId>& changed) {
  const Body& body = graph.step();
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    bool is_concerned = false;
    for_each_input(*graph.context, node, [&](NodeId input) { is_concerned |= changed.contains(input); });
    if (!is_concerned || node.kind != NodeKind::kCall || !has_type_rule(node)) continue;
    const TypeId type = infer(node);
    if (!type || same_type(facts, *graph.context, type, node.type)) continue;
    graph.step().nodes[id].type = type;
    changed.insert(id);
  }
}

}  // namespace epweave
