#include "analysis/aliases.h"

#include <optional>

#include "analysis/collectives.h"
#include "analysis/random_draws.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/may_copy.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

// None where one of them has no number.
std::optional<Dims> numbers_of(Facts& facts, std::span<const ExprId> extents) {
  Dims numbers;
  for (ExprId extent : extents) {
    const auto number = facts.hint(extent);
    if (!number) return std::nullopt;
    numbers.push_back(facts.pool().number(*number));
  }
  return numbers;
}

std::optional<Dims> constants_of(Facts& facts, std::span<const ExprId> extents) {
  for (ExprId extent : extents)
    if (!facts.pool().constant(extent)) return std::nullopt;
  return Dims(extents.begin(), extents.end());
}

// Of an operand viewed as `sizes`. `to_numbers`: those of extents, if they have numbers.
template <class ToNumbers>
Showing showing_of(Facts& facts, const TensorType& operand, std::span<const ExprId> sizes,
                   const ToNumbers& to_numbers) {
  if (view_strides(facts, layout_of(operand), sizes)) return Showing::kView;
  const auto from = to_numbers(facts, operand.sizes), strides = to_numbers(facts, operand.strides),
             to = to_numbers(facts, sizes);
  if (!from || !strides || !to) return Showing::kUnknown;
  return view_strides(facts, {*from, *strides}, *to) ? Showing::kView : Showing::kCopy;
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

template <class ToNumbers>
Showing showing_by(Facts& facts, const Graph& graph, NodeId id, const ToNumbers& to_numbers) {
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
  return showing_of(facts, *operand, result->sizes, to_numbers);
}

}  // namespace

Showing showing_of(Facts& facts, const Graph& graph, NodeId id) {
  return showing_by(facts, graph, id, numbers_of);
}

Showing known_showing_of(Facts& facts, const Graph& graph, NodeId id) {
  return showing_by(facts, graph, id, constants_of);
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
  return node.op != nullptr && node.op->is_view && node.op->find_param("size") &&
         node.op->find_param("stride");
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
