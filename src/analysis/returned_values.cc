#include "analysis/returned_values.h"

#include <fmt/format.h>

namespace epweave {

std::vector<Arg> list_returned(const Graph& graph) {
  const Body& body = graph.step();
  if (body.order.empty() || body.nodes[body.order.back()].kind != NodeKind::kOutput) return {};
  const Node& node = body.nodes[body.order.back()];
  if (node.args.empty()) return {};
  const Arg result = graph.context->args[node.args].front();
  const auto items = result.is_list() ? graph.context->args.children(result) : graph.context->args[node.args];
  return {items.begin(), items.end()};
}

std::vector<NodeId> list_outputs(const Graph& graph) {
  std::vector<NodeId> outputs;
  for (Arg item : list_returned(graph)) outputs.push_back(item.is_node() ? item.as_node() : NodeId());
  return outputs;
}

std::string describe_output(const Graph& graph, const OutputRole& output) {
  return fmt::format("{}{}{}", graph.text(output.role), output.fqn ? " of " : "", graph.text(output.fqn));
}

}  // namespace epweave
