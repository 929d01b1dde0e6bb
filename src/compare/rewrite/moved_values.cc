#include "compare/rewrite/moved_values.h"

#include <utility>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/users.h"
#include "compare/rewrite/conditions.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/op.h"
#include "ops/rules.h"

namespace epweave {
namespace {

bool is_new_launch(const Node& node, std::string_view returned) {
  return is_launch(node) && !node.op->writes && node.op->returns.size() == 1 &&
         node.op->returns.front().type == returned;
}

}  // namespace

bool copies(const Node& node) {
  return node.op->type_rule == rules::clone;
}

bool keeps_order(const Node& node) {
  const OpFamily family = node.op->family;
  if (traits_of(family).elements != Elements::kSame || is_wait(node) || family == OpFamily::kTransfer)
    return false;
  return family != OpFamily::kIdentity || node.op->type_rule == rules::alias;
}

bool is_functional_launch(const Node& node) {
  return is_new_launch(node, "Tensor");
}

bool is_launch_of_each(const Node& node) {
  return is_new_launch(node, "Tensor[]");
}

MovedValues::MovedValues(const RewriteClaims& claims, Numbers& numbers, MovedGroups& groups,
                         MovementTerms& terms, const Effects& effects)
    : claims_(claims),
      numbers_(numbers),
      groups_(groups),
      terms_(terms),
      context_(*claims.graph_a().context),
      body_(claims.graph_a().step()),
      later_writes_(effects) {}

Sequence MovedValues::leaf(NodeId id) {
  Sequence value;
  if (const auto sizes = find_sizes(numbers_, claims_.tensor_a(id)))
    value.append(
        {.term = terms_.intern({.kind = TermKind::kValue, .what = id.index()}), .count = *count_of(*sizes)});
  return value;
}

// What is moved, is followed to what is not, which may be far.
const Sequence& MovedValues::of(NodeId id) {
  std::vector<NodeId> chain{claims_.find_class(id)};
  while (!known_.contains(chain.back())) {
    const NodeId operand = moved_operand(chain.back());
    if (!operand) break;
    chain.push_back(claims_.find_class(operand));
  }
  for (; !chain.empty(); chain.pop_back()) {
    const NodeId value = chain.back();
    if (known_.contains(value)) continue;
    std::optional<Sequence> moved = move(value);
    if (moved && !terms_.reserve(std::ssize(moved->pieces()))) moved.reset();
    known_.emplace(value, moved ? std::move(*moved) : leaf(value));
  }
  return known_.at(claims_.find_class(id));
}

// What a call moves, if that is all it may do and what it reads is still there. None: it computes.
NodeId MovedValues::moved_operand(NodeId id) {
  const Node& node = body_.nodes[id];
  if (node.kind != NodeKind::kCall || node.op == nullptr) return {};
  const bool moves = keeps_order(node) || is_wait(node) || copies(node) ||
                     node.op->family == OpFamily::kCast || is_functional_launch(node);
  const Arg first = arg_of(context_, node, 0);
  const TensorType* type = claims_.tensor_a(id);
  if (!moves || !first.is_node() || type == nullptr || is_written_before(first.as_node(), id)) return {};
  const TensorType* from = claims_.tensor_a(first.as_node());
  return find_sizes(numbers_, type) && find_sizes(numbers_, from) ? first.as_node() : NodeId();
}

// Whether a value may have been written when a call reads it. What is written behind a wait is the
// wait's result, which that is not yet; other values may be read later, through views.
bool MovedValues::is_written_before(NodeId value, NodeId reader) {
  if (!later_writes_.any(value) || holds(Condition::kMovesUnwritten, false)) return false;
  if (!is_wait(body_.nodes[reader])) return true;
  if (!writes_) {
    writes_.emplace(claims_.graph_b(), body_);
    place_ = find_positions(body_, body_.order);
  }
  return writes_->any(writes_->effects().storage_of(value), place_[value], place_[reader]);
}

// None: it computes.
std::optional<Sequence> MovedValues::move(NodeId id) {
  const NodeId operand = moved_operand(id);
  if (!operand) return {};
  const Node& node = body_.nodes[id];
  const TensorType &type = *claims_.tensor_a(id), &from = *claims_.tensor_a(operand);
  if (!is_launch(node)) {
    if (from.device != type.device) return {};
    if (from.dtype == type.dtype) return of(operand);
    if (node.op->family != OpFamily::kCast) return {};
    return terms_.cast(of(operand), type.dtype);
  }
  return groups_.send(terms_, node, of(operand), false);
}

}  // namespace epweave
