#include "passes/chunk/chunk_views.h"

#include <algorithm>
#include <array>

#include "analysis/collectives.h"
#include "analysis/random_draws.h"
#include "ir/types/layout.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Shows every element of its first argument once, with the rows of a part in that part.
bool is_change_of_shape(const Node& node) {
  if (node.op == nullptr || (node.op->cost != CostClass::kFree && !node.op->is_view)) return false;
  const Elements elements = traits_of(node.op->family).elements;
  return !is_wait(node) && (elements == Elements::kSame || elements == Elements::kMoved);
}

// Nothing but the value is missing where it is left out.
bool is_pure(const Graph& graph, const Node& node) {
  const bool binds = node.extra && !node.extra->bindings.empty();
  return node.kind == NodeKind::kCall && node.op != nullptr && !binds && !node.op->writes &&
         !draws_random(graph, node) && !node.op->is_effectful && !is_launch(node) && !is_wait(node);
}

bool is_number(const Graph& graph, NodeId id) {
  const TypeId type = graph.step().nodes[id].type;
  return type && graph.context->types[type].kind == TypeKind::kScalar;
}

}  // namespace

bool ViewJoins::is_joined_above(NodeId id) {
  if (!placements_.of(id).is(PlacementKind::kSplit) || !shown_by(id) || is_contiguous(id)) return false;
  joined_above_.push_back(id);
  return true;
}

NodeId ViewJoins::shown_by(NodeId id) const {
  const Node& node = graph_.step().nodes[id];
  const Arg self = is_change_of_shape(node) ? arg_of(*graph_.context, node, 0) : Arg::none();
  if (!self.is_node()) return {};
  const NodeId shown = self.as_node();
  const bool is_divided_too = placements_.has_parts_for(shown, placements_.region[id]) &&
                              placements_.of(shown).is(PlacementKind::kSplit);
  return is_divided_too ? shown : NodeId();
}

bool ViewJoins::is_contiguous(NodeId id) {
  const TensorType* type = tensor_of(*graph_.context, graph_.step().nodes[id].type);
  if (type == nullptr || type->strides.size() != type->sizes.size()) return true;
  return epweave::is_contiguous(facts_, {type->sizes, type->strides});
}

void drop_unused(Graph& chunked, NodeId first_new, std::vector<NodeId> candidates, UseCounts uses) {
  Body& step = chunked.step();
  IdSet<NodeId> gone;
  std::size_t count = 0;
  while (!candidates.empty()) {
    const NodeId id = candidates.back();
    candidates.pop_back();
    const Node& node = step.nodes[id];
    if (uses[id] > 0 || !is_pure(chunked, node) || !gone.insert(id)) continue;
    ++count;
    for_each_input(*chunked.context, node, [&](NodeId input) {
      --uses.at(input);
      if (input.index() >= first_new.index() || is_number(chunked, input)) candidates.push_back(input);
    });
  }
  if (count > 0) std::erase_if(step.order, [&](NodeId id) { return gone.contains(id); });
}

}  // namespace epweave
