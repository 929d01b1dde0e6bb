#include "compare/rewrite/verify_aliases.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/rewrite/conditions.h"

namespace epweave {
namespace {

// The value whose memory is shown, by views of known extent where a call may copy.
NodeId find_shown_value(const Graph& graph, Facts& facts, NodeId id) {
  for (NodeId value = id;;) {
    if (may_copy(graph.step().nodes[value]) && showing_of(facts, graph, value) == Showing::kCopy)
      return value;
    const NodeId shown = shown_operand(*graph.context, graph.step(), value);
    if (!shown) return value;
    value = shown;
  }
}

// Tensors, tuples of them, and what has no recorded type; no numbers, groups or meshes.
bool has_memory(const Context& context, TypeId type) {
  return !type ||
         (context.types[type].kind != TypeKind::kScalar && context.types[type].kind != TypeKind::kValue);
}

// The elements that a tensor shows of its memory, in order; none: they have no numbers, or lie in
// too many pieces.
std::optional<std::vector<Run>> list_elements(const TensorType& type, const ExprPool& exprs) {
  std::vector<std::int64_t> sizes, strides;
  const auto read = [&](std::span<const ExprId> from, std::vector<std::int64_t>& into) {
    for (ExprId expr : from) {
      const auto number = exprs.constant(expr);
      if (!number) return false;
      into.push_back(*number);
    }
    return true;
  };
  const auto offset = type.offset ? exprs.constant(type.offset) : 0;
  if (!read(type.sizes, sizes) || !read(type.strides, strides) || !offset || sizes.size() != strides.size())
    return {};
  auto runs = runs_of(sizes, strides, *offset, kMaxElements);
  if (runs) std::ranges::sort(*runs, {}, &Run::first);
  return runs;
}

}  // namespace

std::vector<NodeId> list_returned_values(const Graph& graph) {
  std::vector<NodeId> results;
  const Body& body = graph.step();
  if (body.order.empty() || body.nodes[body.order.back()].kind != NodeKind::kOutput) return results;
  for_each_input(*graph.context, body.nodes[body.order.back()],
                 [&](NodeId result) { results.push_back(result); });
  return results;
}

AliasCheck::AliasCheck(RewriteClaims& claims, const Effects& effects_a, const Effects& effects_b,
                       const LoadedResults& loaded)
    : claims_(claims),
      graph_a_(claims.graph_a()),
      graph_b_(claims.graph_b()),
      context_(*graph_a_.context),
      effects_a_(effects_a),
      effects_b_(effects_b),
      loaded_(loaded) {}

void AliasCheck::check() {
  list_held();
  if (are_grouped_alike()) return;
  for (std::size_t result = first_result_; result < held_.size(); ++result) check_result(result);
}

void AliasCheck::list_held() {
  for (NodeId a : graph_a_.step().order) {
    const NodeKind kind = graph_a_.step().nodes[a].kind;
    const bool is_held = kind == NodeKind::kPlaceholder || kind == NodeKind::kGetAttr;
    if (const NodeId b = is_held ? claims_.whole(claims_.find_class(a)) : NodeId()) hold(a, b);
  }
  first_result_ = held_.size();
  const std::vector<NodeId> before = list_returned_values(graph_a_), after = list_returned_values(graph_b_);
  if (before.size() != after.size()) return;  // CallCheck says so
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::size_t count = held_.size();
    hold(before[i], after[i]);
    if (held_.size() == count) continue;
    if (i < loaded_.of_a.size() && loaded_.of_a[i]) held_.back().memory_a = loaded_.of_a[i];
    if (i < loaded_.of_b.size() && loaded_.of_b[i]) held_.back().memory_b = loaded_.of_b[i];
  }
}

void AliasCheck::hold(NodeId a, NodeId b) {
  if (!has_memory(context_, graph_a_.step().nodes[a].type) ||
      !has_memory(context_, graph_b_.step().nodes[b].type))
    return;
  held_.push_back({a, b, memory_in_a(a), memory_in_b(b)});
}

NodeId AliasCheck::memory_in_a(NodeId a) {
  const NodeId value = find_shown_value(graph_a_, claims_.facts_a(), a);
  return may_copy(graph_a_.step().nodes[value]) ? value : effects_a_.storage_of(value);
}

// Memory that the rewrite made, shows each value that was moved into it apart from all others.
NodeId AliasCheck::memory_in_b(NodeId b) {
  const NodeId value = find_shown_value(graph_b_, claims_.facts_b(), b);
  if (is_new(value))
    for (NodeId id = b; id; id = shown_operand(context_, graph_b_.step(), id))
      if (claims_[id].kind == ClaimKind::kMoved) return id;
  return may_copy(graph_b_.step().nodes[value]) ? value : effects_b_.storage_of(value);
}

bool AliasCheck::is_new(NodeId b) const {
  const ClaimKind kind = claims_[b].kind;
  return kind == ClaimKind::kNone || kind == ClaimKind::kBlocks || kind == ClaimKind::kMoved;
}

// Whether what shows one memory in one of the graphs does so in the other. Then it shows the same
// elements of it, as it is the same.
bool AliasCheck::are_grouped_alike() const {
  SideTable<NodeId, NodeId> of_a, of_b;
  return std::ranges::all_of(held_, [&](const Held& held) {
    NodeId &b = of_a.at(held.memory_a), &a = of_b.at(held.memory_b);
    if (!b) b = held.memory_b;
    if (!a) a = held.memory_a;
    return b == held.memory_b && a == held.memory_a;
  });
}

void AliasCheck::check_result(std::size_t result) {
  const Held& x = held_[result];
  bool is_assumed = false;
  for (std::size_t i = 0; i < result; ++i) {
    const Held& y = held_[i];
    if ((x.memory_a == y.memory_a) == (x.memory_b == y.memory_b)) continue;
    if (!is_assumed && share_in_a(x, y)) {
      is_assumed = true;
      assumptions_.push_back(
          fmt::format("nothing writes into {} or {} behind the step, which share elements in the first "
                      "graph alone",
                      claims_.name_b(x.in_b), claims_.name_b(y.in_b)));
    } else if (!holds(Condition::kResultsApart, !share_in_b(x, y))) {
      return fail(x, y);
    }
  }
}

void AliasCheck::fail(const Held& x, const Held& y) {
  const std::string a = claims_.name_a(y.in_a), b = claims_.name_a(x.in_a);
  const std::string what = x.in_b == y.in_b
                               ? fmt::format("returns {} for {} and for {}", claims_.name_b(x.in_b), a, b)
                               : fmt::format("returns {}, which shares elements with {}",
                                             claims_.describe(x.in_b), claims_.describe(y.in_b));
  claims_.fail(graph_b_.step().order.back(), "rewrite-aliases",
               fmt::format("{}; in the first graph {} and {} share none", what, a, b));
}

bool AliasCheck::share_in_a(const Held& x, const Held& y) const {
  return x.memory_a == y.memory_a &&
         may_meet(claims_.tensor_a(x.in_a), claims_.tensor_a(y.in_a), context_.exprs);
}

bool AliasCheck::share_in_b(const Held& x, const Held& y) const {
  return x.memory_b == y.memory_b &&
         may_meet(claims_.tensor_b(x.in_b), claims_.tensor_b(y.in_b), context_.exprs);
}

// Where one is no tensor, its elements are not known.
bool AliasCheck::may_meet(const TensorType* x, const TensorType* y, const ExprPool& exprs) {
  if (x == nullptr || y == nullptr || x->dtype != y->dtype) return true;
  const auto mine = list_elements(*x, exprs), other = list_elements(*y, exprs);
  if (!mine || !other) return true;
  for (auto a = mine->begin(), b = other->begin(); a != mine->end() && b != other->end();) {
    if (a->first < b->first + b->count && b->first < a->first + a->count) return true;
    a->first < b->first ? ++a : ++b;
  }
  return false;
}

}  // namespace epweave
