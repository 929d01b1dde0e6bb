#include "analysis/seeds.h"

#include <algorithm>

#include "ops/op.h"

namespace epweave {
namespace {

bool is_tangent(const Graph& graph, const Node& node) {
  return node.kind == NodeKind::kPlaceholder &&
         graph.text(node.name).find("tangents") != std::string_view::npos;
}

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

bool is_seed(const Graph& graph, const NodeLists& inputs, const NodeLists& users, NodeId id) {
  return is_tangent(graph, graph.step().nodes[id]) || is_one_for_loss(graph, inputs, users, id);
}

}  // namespace epweave
