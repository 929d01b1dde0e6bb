#include "analysis/open_body.h"

#include <algorithm>
#include <utility>

#include "ops/bind.h"

namespace epweave {

OpenBody::OpenBody(Graph& graph, Body& body)
    : graph_(graph),
      body_(body),
      facts_(graph),
      users_(list_users(*graph.context, body)),
      old_order_(std::exchange(body.order, {})) {
  for (NodeId id : old_order_) by_name_.at(body.nodes[id].name) = id;
}

void OpenBody::place(NodeId id) {
  body_.order.push_back(id);
  placed_.insert(id);
}

NodeId OpenBody::add(const Node& node) {
  const NodeId id = body_.nodes.push_back(node);
  by_name_.at(node.name) = id;
  place(id);
  return id;
}

void OpenBody::replace(NodeId value, NodeId by) {
  drop(value);
  replaced_.at(value) = by;
}

Arg OpenBody::current(Arg arg) const {
  return context().args.map(arg, [&](Arg leaf) {
    return leaf.is_node() && replaced_[leaf.as_node()] ? Arg::node(replaced_[leaf.as_node()]) : leaf;
  });
}

void OpenBody::redirect(Node& node) const {
  const auto by = [&](Arg leaf) { return current(leaf); };
  map_arguments(context(), node, by);
}

void OpenBody::close() {
  std::erase_if(body_.order, [&](NodeId id) { return is_gone(id); });
  for (NodeId id : body_.order) redirect(body_.nodes[id]);
}

bool OpenBody::has_sizes(NodeId id, const Dims& sizes) {
  const TensorType* type = tensor_of(context(), body_.nodes[id].type);
  return type != nullptr &&
         std::ranges::equal(type->sizes, sizes, [&](ExprId a, ExprId b) { return facts_.equal(a, b); });
}

}  // namespace epweave
