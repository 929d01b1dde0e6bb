#include "analysis/placeholders.h"

namespace epweave {

std::map<StringId, NodeId> list_placeholders(const Graph& graph) {
  const Body& step = graph.step();
  std::map<StringId, NodeId> placeholders;
  for (NodeId id : step.order) {
    if (step.nodes[id].kind != NodeKind::kPlaceholder) break;
    placeholders.emplace(step.nodes[id].name, id);
  }
  return placeholders;
}

}  // namespace epweave
