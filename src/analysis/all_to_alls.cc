#include "analysis/all_to_alls.h"

#include <algorithm>

#include "ops/op.h"

namespace epweave {

bool is_all_to_all(const Node& node) {
  return has_family(node, OpFamily::kAllToAll);
}

bool has_all_to_all(const Graph& graph) {
  const Body& step = graph.step();
  return std::ranges::any_of(step.order, [&](NodeId id) { return is_all_to_all(step.nodes[id]); });
}

}  // namespace epweave
