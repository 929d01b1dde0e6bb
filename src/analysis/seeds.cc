#include "analysis/seeds.h"

#include <algorithm>

#include "ops/op.h"

namespace epweave {
namespace {

// A gradient of 1: as large as a number that forward computed, read by backward alone.
bool is_one_for_loss(const Graph& graph, const NodeLists& inputs, const NodeLists& users, NodeId id) {
  const Node& node = graph.step().nodes[id];
  if (node.op == nullptr || node.op->family != OpFamily::kLike || node.op->makes_zeros || node.op->is_random)
    return false;
  const TensorType* type = tensor_of(*graph.context, node.type);
  if (type == nullptr || !is_floating(type->dtype) || type->rank() != 0 || users[id].empty()) return false;
  const auto reads_backward = [&](NodeId other) { return graph.step().nodes[other].is_backward(); };
  return std::ranges::all_of(users[id], reads_backward) && std::ranges::none_of(inputs[id], reads_backward);
}

}  // namespace

std::vector<NodeId> find_seeds(const Graph& graph, const NodeLists& inputs, const NodeLists& users) {
  IdSet<StringId> tangents;
  for (const InputRole& input : graph.inputs)
    if (graph.text(input.role) == "tangent") tangents.insert(input.name);
  std::vector<NodeId> seeds;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    const bool is_tangent =
        node.kind == NodeKind::kPlaceholder &&
        (tangents.contains(node.name) || graph.text(node.name).find("tangents") != std::string_view::npos);
    if (is_tangent || is_one_for_loss(graph, inputs, users, id)) seeds.push_back(id);
  }
  return seeds;
}

}  // namespace epweave
