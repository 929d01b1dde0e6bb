#include "analysis/user_inputs.h"

namespace epweave {

std::vector<UserInput> list_user_inputs(const Graph& graph) {
  static const InputRole kNone;
  std::vector<UserInput> users;
  std::size_t position = 0;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kPlaceholder) break;
    const InputRole& role = position < graph.inputs.size() ? graph.inputs[position] : kNone;
    ++position;
    const TensorType* type = tensor_of(*graph.context, node.type);
    if (type == nullptr || (role.role && graph.text(role.role) != "user")) continue;
    users.push_back({id, graph.text(role.which ? role.which : node.name), type, role.role.valid()});
  }
  return users;
}

}  // namespace epweave
