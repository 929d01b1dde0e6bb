#include "replay/run/written_inputs.h"

#include "analysis/effects.h"

namespace epweave::replay {

std::vector<bool> find_written_inputs(const Graph& graph) {
  const Body& body = graph.step();
  const Effects effects(graph, body);
  std::vector<bool> result;
  for (const NodeId id : body.order) {
    if (body.nodes[id].kind != NodeKind::kPlaceholder) continue;
    const std::size_t i = result.size();
    const bool is_buffer = i < graph.inputs.size() && graph.text(graph.inputs[i].role) == "buffer";
    result.push_back(is_buffer || effects.is_written(effects.storage_of(id)));
  }
  return result;
}

}  // namespace epweave::replay
