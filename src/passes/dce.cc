#include "passes/dce.h"

#include <algorithm>

#include "analysis/random_draws.h"
#include "ir/walk.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Whether the node stays even if nothing uses it.
bool is_root(const Graph& graph, const Body& body, const Node& node, Assertions assertions) {
  if (node.kind == NodeKind::kPlaceholder || node.kind == NodeKind::kOutput) return true;
  if (node.kind == NodeKind::kGetAttr) return false;
  const std::string_view target = graph.text(node.target);
  if (target == "aten._assert_async.msg" || target == "aten._assert_async.default")
    return assertions == Assertions::kKept;
  return !node.op || node.op->writes || node.op->is_effectful || draws_random(graph, body, node);
}

// Marks what the roots of one body need.
class Marker {
 public:
  Marker(const Graph& graph, const Body& body, Assertions assertions)
      : graph_(graph), context_(*graph.context), body_(body), assertions_(assertions) {}

  // One walk from the last node to the first: what a node needs lies before it.
  IdSet<NodeId> mark() {
    for (const auto [id, node] : walk_extras(context_, body_)) add_binders(id, node);
    for (const auto [id, node] : walk_back(context_, body_)) {
      passed_.insert(id);
      if (is_root(graph_, body_, node, assertions_)) needed_.insert(id);
      if (needed_.contains(id)) need_operands(node);
    }
    while (!late_.empty()) {
      const Node& node = body_.nodes[late_.back()];
      late_.pop_back();
      need_operands(node);
    }
    return std::move(needed_);
  }

 private:
  void add_binders(NodeId id, const Node& node) {
    if (node.extra == nullptr) return;
    for (const Binding& binding : node.extra->bindings) binders_.at(binding.symbol) = id;
  }

  void need(NodeId id) {
    if (needed_.insert(id) && passed_.contains(id)) late_.push_back(id);
  }

  void need_operands(const Node& node) {
    need_arguments(node.args);
    need_arguments(node.kwargs);
    need_type(node.type);
  }

  void need_arguments(ArgRange range) {
    for (Arg arg : context_.args[range]) {
      if (arg.is_node()) need(arg.as_node());
      if (arg.is(ArgKind::kSymbolic)) need_symbols(arg.as_expr());
      if (arg.is_tree()) need_arguments(arg.children());
    }
  }

  void need_type(TypeId id) {
    if (binders_.size() == 0 || !id || !seen_types_.insert(id)) return;
    const Type& type = context_.types[id];
    for (ExprId size : type.tensor.sizes) need_symbols(size);
    for (ExprId stride : type.tensor.strides) need_symbols(stride);
    if (type.tensor.offset) need_symbols(type.tensor.offset);
    if (type.expr) need_symbols(type.expr);
    for (TypeId element : type.elements) need_type(element);
  }

  void need_symbols(ExprId expr) {
    if (binders_.size() == 0 || !seen_exprs_.insert(expr)) return;
    for (StringId symbol : context_.exprs.symbols(expr))
      if (const NodeId binder = binders_[symbol]) need(binder);
  }

  const Graph& graph_;
  Context& context_;
  const Body& body_;
  Assertions assertions_;
  SideTable<StringId, NodeId> binders_;  // of the symbols that the body binds
  IdSet<NodeId> needed_, passed_;
  IdSet<TypeId> seen_types_;
  IdSet<ExprId> seen_exprs_;
  std::vector<NodeId> late_;  // needed by what comes before them: the symbols that a type names
};

void drop_dead_nodes(const Graph& graph, Body& body, Assertions assertions) {
  const IdSet<NodeId> needed = Marker(graph, body, assertions).mark();
  std::erase_if(body.order, [&](NodeId id) { return !needed.contains(id); });
}

}  // namespace

Graph dce(const Graph& graph, Assertions assertions) {
  Graph result = graph;
  for (Body& body : result.bodies) drop_dead_nodes(result, body, assertions);
  drop_unnamed_bodies(result);
  return result;
}

}  // namespace epweave
