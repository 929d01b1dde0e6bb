#include "analysis/aliases.h"

#include <optional>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/random_draws.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/by_op.h"
#include "ops/may_copy.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

// Extents as numbers; none where one of them has no number.
using AsNumbers = std::optional<Dims> (*)(Facts&, std::span<const ExprId>);

std::optional<Dims> as_traced(Facts& facts, std::span<const ExprId> extents) {
  Dims numbers;
  for (ExprId extent : extents) {
    const auto number = facts.hint(extent);
    if (!number) return std::nullopt;
    numbers.push_back(facts.pool().number(*number));
  }
  return numbers;
}

std::optional<Dims> as_written(Facts& facts, std::span<const ExprId> extents) {
  for (ExprId extent : extents)
    if (!facts.pool().constant(extent)) return std::nullopt;
  return Dims(extents.begin(), extents.end());
}

}  // namespace

NodeId shown_operand(const Context& context, const Body& body, NodeId id) {
  const Node& node = body.nodes[id];
  if (node.kind != NodeKind::kCall || node.op == nullptr) return {};
  const auto first = [&](std::size_t param) {
    const Arg arg = arg_of(context, node, param);
    return arg.is_node() ? arg.as_node() : NodeId();
  };
  if (is_wait(node)) return first(0);
  if (node.op->family == OpFamily::kElement) {
    const NodeId list = first(0);
    const OpInfo* op = list ? body.nodes[list].op : nullptr;
    const bool shows =
        op != nullptr && (op->is_view || op->writes ||
                          (op->family == OpFamily::kElement && shown_operand(context, body, list).valid()));
    return shows ? list : NodeId();
  }
  for (const OpReturn& result : node.op->returns)
    for (std::size_t i = 0; i < node.op->params.size(); ++i)
      if (!result.alias_set.empty() && node.op->params[i].alias_set == result.alias_set) return first(i);
  return {};
}

bool may_copy(const Node& node) {
  return node.op != nullptr && may_copy(*node.op);
}

namespace {

Showing find_showing(Facts& facts, const Graph& graph, NodeId id, AsNumbers as_numbers) {
  const Node& node = graph.step().nodes[id];
  if (!may_copy(node))
    return shown_operand(*graph.context, graph.step(), id) ? Showing::kView : Showing::kCopy;
  const Arg self = arg_of(*graph.context, node, 0);
  const TensorType* operand =
      self.is_node() ? tensor_of(*graph.context, graph.step().nodes[self.as_node()].type) : nullptr;
  const TensorType* result = tensor_of(*graph.context, node.type);
  // Whether a conjugation is still to be done is not recorded; there is none of real elements.
  if (operand != nullptr && node.op->family == OpFamily::kElementwise)
    return is_complex(operand->dtype) ? Showing::kUnknown : Showing::kView;
  if (operand == nullptr || result == nullptr || operand->strides.size() != operand->sizes.size())
    return Showing::kUnknown;
  if (view_strides(facts, layout_of(*operand), result->sizes)) return Showing::kView;
  const auto from = as_numbers(facts, operand->sizes), strides = as_numbers(facts, operand->strides),
             to = as_numbers(facts, result->sizes);
  if (!from || !strides || !to) return Showing::kUnknown;
  return view_strides(facts, {*from, *strides}, *to) ? Showing::kView : Showing::kCopy;
}

}  // namespace

Showing showing_of(Facts& facts, const Graph& graph, NodeId id) {
  return find_showing(facts, graph, id, as_traced);
}

Showing known_showing_of(Facts& facts, const Graph& graph, NodeId id) {
  return find_showing(facts, graph, id, as_written);
}

NodeId MemoryRoots::shown_by(NodeId id) {
  if (may_copy(body_.nodes[id])) {
    Showing showing = Showing::kUnknown;
    if (&body_ == &graph_.step()) showing = showing_of(facts_, graph_, id);
    if ((showing == Showing::kUnknown ? unknown_ : showing) == Showing::kCopy) return {};
  }
  return shown_operand(*graph_.context, body_, id);
}

bool addresses_storage(const Node& node) {
  static const std::vector<bool> addresses = list_by_op(
      [](const OpInfo& op) { return op.is_view && op.find_param("size") && op.find_param("stride"); });
  return node.op != nullptr && addresses[node.op->index];
}

bool reads_layout(const Graph& graph, const Node& node) {
  if (node.kind != NodeKind::kCall) return false;
  if (!has_type_rule(node) || node.op == nullptr) return true;
  if (draws_random(graph, node)) return true;
  if (!node.op->returns.empty()) return addresses_storage(node);
  const auto stride = node.op->find_param("stride");
  return stride && node.op->find_param("size") && !arg_of(*graph.context, node, *stride).is_none();
}

LaterWrites::LaterWrites(const Effects& effects)
    : effects_(effects), positions_(effects.body().nodes.size()), last_write_(effects.body().nodes.size()) {
  const Body& body = effects.body();
  std::uint32_t position = 0;
  for (NodeId id : body.order) {
    positions_[id] = ++position;
    if (is_wait(body.nodes[id])) continue;
    for (const StorageAccess& access : effects.accesses_of(id))
      if (access.writes) last_write_[access.storage] = position;
  }
}

}  // namespace epweave
