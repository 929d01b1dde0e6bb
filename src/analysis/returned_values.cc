#include "analysis/returned_values.h"

namespace epweave {

std::vector<NodeId> list_outputs(const Graph& graph) {
  const Body& body = graph.step();
  std::vector<NodeId> outputs;
  if (body.order.empty() || body.nodes[body.order.back()].kind != NodeKind::kOutput) return outputs;
  const Node& node = body.nodes[body.order.back()];
  if (node.args.empty()) return outputs;
  const Arg result = graph.context->args[node.args].front();
  const auto items = result.is_list() ? graph.context->args.children(result) : graph.context->args[node.args];
  for (Arg item : items) outputs.push_back(item.is_node() ? item.as_node() : NodeId());
  return outputs;
}

}  // namespace epweave
