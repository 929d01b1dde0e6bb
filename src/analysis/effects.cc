#include "analysis/effects.h"

#include <array>

#include "analysis/collectives.h"
#include "analysis/random_draws.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/may_copy.h"
#include "ops/op.h"

namespace epweave {
namespace {

bool is_unknown(const Node& node) {
  return node.kind == NodeKind::kCall && node.op == nullptr;
}

// Classes of values that may share storage: a forest whose roots are the earliest values.
class StorageClasses {
 public:
  StorageClasses(const Context& context, const Body& body)
      : context_(context), body_(body), parent_(body.nodes.size()), place_(body.nodes.size(), ~0U) {
    for (std::uint32_t i = 0; i < body.nodes.size(); ++i) parent_[NodeId(i)] = NodeId(i);
  }

  // The next node that executes.
  void add(NodeId id, const Node& node) {
    place_[id] = count_++;
    if (node.kind == NodeKind::kGetAttr) {
      NodeId& first = first_of_attribute_.at(node.target);
      if (first) join(first, id);
      first = first ? first : id;
    } else if (is_unknown(node)) {
      for_each_input(context_, node, [&](NodeId input) { join(input, id); });
    } else if (node.kind == NodeKind::kCall) {
      join_call(id, node);
    }
  }

  NodeId find(NodeId id) {
    while (parent_[id] != id) id = parent_[id] = parent_[parent_[id]];
    return id;
  }

 private:
  void join(NodeId a, NodeId b) {
    a = find(a), b = find(b);
    if (a == b) return;
    if (place_[b] < place_[a]) std::swap(a, b);
    parent_[b] = a;
  }

  void join_all(NodeId id, Arg arg) {
    context_.args.for_each_node(arg, [&](NodeId input) { join(input, id); });
  }

  void join_call(NodeId id, const Node& node) {
    if (has_family(node, OpFamily::kElement)) return join_element(id, node);
    if (is_wait(node)) return join_all(id, arg_of(context_, node, 0));
    if (!node.op->is_view && !node.op->writes) return;
    for (std::size_t i = 0; i < node.op->params.size(); ++i) {
      const OpParam& param = node.op->params[i];
      if (param.alias_set.empty() || !returns_alias(*node.op, param)) continue;
      join_all(id, arg_of(context_, node, i));
    }
  }

  static bool returns_alias(const OpInfo& op, const OpParam& param) {
    for (const OpReturn& r : op.returns)
      if (r.alias_set == param.alias_set) return true;
    return false;
  }

  // An element of a computed tuple is a storage of its own; an element of a list of views is one of
  // the views.
  void join_element(NodeId id, const Node& node) {
    const Arg from = arg_of(context_, node, 0);
    if (!from.is_node()) return;
    const NodeId tuple = from.as_node();
    const Node& made = body_.nodes[tuple];
    const bool is_computed =
        made.op != nullptr && !made.op->is_view && !made.op->writes && !has_family(made, OpFamily::kElement);
    const auto element = is_computed ? tuple_element(context_, body_, node) : std::nullopt;
    if (!element) return join(tuple, id);
    std::uint32_t& last = last_element_.at(tuple);
    for (std::uint32_t i = last; i != kNone; i = elements_[i].previous)
      if (elements_[i].index == element->index) return join(elements_[i].node, id);
    elements_.push_back({element->index, id, last});
    last = static_cast<std::uint32_t>(elements_.size() - 1);
  }

  const Context& context_;
  const Body& body_;
  IdVector<NodeId, NodeId> parent_;
  IdVector<NodeId, std::uint32_t> place_;  // among the nodes that execute
  std::uint32_t count_ = 0;
  SideTable<StringId, NodeId> first_of_attribute_;

  // Elements taken from computed tuples, those of one tuple in a chain.
  struct Element {
    std::int64_t index;
    NodeId node;
    std::uint32_t previous;
  };
  static constexpr std::uint32_t kNone = ~0U;
  std::vector<Element> elements_;
  SideTable<NodeId, std::uint32_t> last_element_{kNone};  // by tuple
};

// Calls visit(NodeId operand, bool writes) for the operands whose elements the node touches.
template <class Visit>
void visit_operands(const Context& context, const Body& body, NodeId id, const Visit& visit) {
  const Node& node = body.nodes[id];
  if (node.kind != NodeKind::kCall) return;
  if (is_unknown(node)) {
    for_each_input(context, node, [&](NodeId input) { visit(input, true); });
  } else if (is_wait(node)) {
    for_each_input(context, node, [&](NodeId input) { visit(input, true); });
    // Until here the communication, or the copy on its own stream, read (and wrote) its operands.
    const Arg copy = arg_of(context, node, 0);
    const bool is_of_copy =
        copy.is_node() && waits_for_copies(node) && completes(node, body.nodes[copy.as_node()]);
    if (NodeId launch = is_of_copy ? copy.as_node() : find_waited_launch(context, body, id))
      for_each_input(context, body.nodes[launch], [&](NodeId operand) { visit(operand, false); });
  } else if (!reads_elements(node)) {
    return;
  } else if (!node.op->writes) {
    for_each_input(context, node, [&](NodeId input) { visit(input, false); });
  } else {
    for (std::size_t i = 0; i < node.op->params.size(); ++i)
      context.args.for_each_node(arg_of(context, node, i),
                                 [&](NodeId input) { visit(input, node.op->params[i].is_written); });
  }
}

// Collects, for one storage at a time, the accesses since its last write.
class EdgeBuilder {
 public:
  explicit EdgeBuilder(std::vector<OrderEdge>& edges) : edges_(edges) {}

  void access(NodeId node, StorageAccess access) {
    State& state = states_.at(access.storage);
    if (!access.writes) {
      if (state.writer) add(state.writer, node, OrderReason::kReadAfterWrite, access.storage);
      readers_.push_back({node, kNone});
      const auto reader = static_cast<std::uint32_t>(readers_.size() - 1);
      (state.first_reader == kNone ? state.first_reader : readers_[state.last_reader].next) = reader;
      state.last_reader = reader;
      return;
    }
    if (state.first_reader == kNone && state.writer)
      add(state.writer, node, OrderReason::kWriteAfterWrite, access.storage);
    for (std::uint32_t i = state.first_reader; i != kNone; i = readers_[i].next)
      add(readers_[i].node, node, OrderReason::kWriteAfterRead, access.storage);
    state.first_reader = kNone;
    state.writer = node;
  }

  void draw(NodeId node) {
    if (last_draw_) add(last_draw_, node, OrderReason::kRandom, {});
    last_draw_ = node;
  }

  // An effect that an op of unknown effect may depend on or disturb.
  void effect(NodeId node) {
    if (last_unknown_) add(last_unknown_, node, OrderReason::kUnknownEffect, {});
    since_unknown_.push_back(node);
  }

  void unknown_effect(NodeId node) {
    if (since_unknown_.empty() && last_unknown_) add(last_unknown_, node, OrderReason::kUnknownEffect, {});
    for (NodeId before : since_unknown_) add(before, node, OrderReason::kUnknownEffect, {});
    since_unknown_.clear();
    last_unknown_ = node;
  }

 private:
  static constexpr std::uint32_t kNone = ~0U;
  struct State {
    NodeId writer;
    std::uint32_t first_reader = kNone, last_reader = kNone;  // since the last write, a chain
  };
  struct ReadNode {
    NodeId node;
    std::uint32_t next;
  };

  void add(NodeId before, NodeId after, OrderReason reason, NodeId about) {
    if (before != after) edges_.push_back({before, after, reason, about});
  }

  std::vector<OrderEdge>& edges_;
  SideTable<NodeId, State> states_;
  std::vector<ReadNode> readers_;
  std::vector<NodeId> since_unknown_;
  NodeId last_draw_, last_unknown_;
};

// Draws aside.
bool has_effect(const Node& node) {
  return node.op->writes || node.op->is_effectful || node.op->cost == CostClass::kHostSync ||
         is_launch(node) || is_wait(node);
}

// Calls visit(StringId) for every symbol, with repetition.
template <class Visit>
void for_each_symbol(const ExprPool& exprs, PolyId poly, const Visit& visit) {
  for (const Term& term : exprs[poly].terms)
    for (AtomId id : term.atoms) {
      const Atom& atom = exprs[id];
      if (atom.kind == AtomKind::kSymbol) visit(atom.name);
      for (PolyId operand : atom.operands) for_each_symbol(exprs, operand, visit);
    }
}

// Calls visit(ExprId) for every symbolic scalar among the arguments.
template <class Visit>
void for_each_expression(const Context& context, ArgRange range, const Visit& visit) {
  for (const Arg arg : context.args[range]) {
    if (arg.is(ArgKind::kSymbolic)) visit(arg.as_expr());
    if (arg.is_tree()) for_each_expression(context, arg.children(), visit);
  }
}

// Orders a call that uses a symbol behind the call that binds it; inputs come first anyway.
class SymbolUses {
 public:
  explicit SymbolUses(const Context& context) : context_(context) {}

  // The next node that executes.
  void add(NodeId id, const Node& node) {
    if (node.kind != NodeKind::kCall) return;
    const auto add_edges = [&](ExprId expr) {
      for_each_symbol(context_.exprs, context_.exprs.poly(expr), [&](StringId symbol) {
        if (const NodeId binder = binders_[symbol]; binder && binder != id)
          edges_.push_back({binder, id, OrderReason::kData, {}});
      });
    };
    for_each_expression(context_, node.args, add_edges);
    for_each_expression(context_, node.kwargs, add_edges);
    if (node.extra != nullptr)
      for (const Binding& binding : node.extra->bindings) binders_.at(binding.symbol) = id;
  }

  const std::vector<OrderEdge>& edges() const { return edges_; }

 private:
  const Context& context_;
  SideTable<StringId, NodeId> binders_;
  std::vector<OrderEdge> edges_;
};

}  // namespace

std::string_view name_of(OrderReason reason) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "takes its value",
      "reads what it wrote",
      "overwrites what it reads",
      "overwrites what it wrote",
      "draws random numbers after it",
      "has or follows an op with unknown effects",
      "is launched after it on the same process group",
      "reads on the host what is complete only then",
      "is scheduled behind it",
  };
  return kNames[static_cast<std::size_t>(reason)];
}

bool reads_elements(const Node& node) {
  if (node.kind != NodeKind::kCall) return false;
  return node.op == nullptr || node.op->cost != CostClass::kFree || may_copy(*node.op);
}

Effects::Effects(const Graph& graph, const Body& body, const Visit& also)
    : graph_(graph), context_(*graph.context), body_(body), storage_(body.nodes.size()) {
  const Context& context = context_;
  StorageClasses classes(context, body);
  SymbolUses symbols(context);
  touches_.reserve(4 * body.order.size());
  for (const auto [id, node] : walk_extras(context, body)) {
    classes.add(id, node);
    find_touches(id, node);
    symbols.add(id, node);
    if (also) also(id, node);
  }
  for (std::uint32_t i = 0; i < body.nodes.size(); ++i) storage_[NodeId(i)] = classes.find(NodeId(i));
  find_accesses();
  edges_.insert(edges_.end(), symbols.edges().begin(), symbols.edges().end());
  touches_ = {};
}

void Effects::find_touches(NodeId id, const Node& node) {
  visit_operands(context_, body_, id, [&](NodeId operand, bool writes) {
    touches_.push_back({id, operand, writes ? TouchKind::kWrite : TouchKind::kRead});
  });
  if (is_unknown(node)) {
    touches_.push_back({id, {}, TouchKind::kUnknown});
  } else if (node.kind == NodeKind::kCall) {
    const bool draws = draws_random(graph_, body_, node);
    if (draws) touches_.push_back({id, {}, TouchKind::kRandom});
    if (draws || has_effect(node)) touches_.push_back({id, {}, TouchKind::kEffect});
  }
}

void Effects::find_accesses() {
  struct FoundAccess {
    NodeId node;
    StorageAccess access;
  };
  std::vector<FoundAccess> found;  // to written storage, in execution order, each storage of a node once
  IdVector<NodeId, std::uint32_t> slot(body_.nodes.size(), 0);  // by storage: where it was last accessed
  written_ = IdSet<NodeId>(body_.nodes.size());
  for (const Touch& touch : touches_)
    if (touch.kind == TouchKind::kWrite) written_.insert(storage_[touch.operand]);
  EdgeBuilder builder(edges_);
  begins_.assign(body_.nodes.size() + 1, 0);
  for (std::size_t next = 0; next < touches_.size();) {
    const NodeId id = touches_[next].node;
    const std::size_t first = found.size();
    const std::size_t begin = next;
    for (; next < touches_.size() && touches_[next].node == id; ++next) {
      const Touch& touch = touches_[next];
      if (!touch.operand) continue;
      const NodeId storage = storage_[touch.operand];
      if (!is_written(storage)) continue;
      const bool writes = touch.kind == TouchKind::kWrite;
      std::uint32_t& at = slot[storage];
      if (at >= first && at < found.size() && found[at].access.storage == storage) {
        found[at].access.writes |= writes;
      } else {
        at = static_cast<std::uint32_t>(found.size());
        found.push_back({id, {storage, writes}});
      }
    }
    begins_[id.index() + 1] = static_cast<std::uint32_t>(found.size() - first);
    for (std::size_t i = first; i < found.size(); ++i) builder.access(id, found[i].access);
    for (std::size_t i = begin; i < next; ++i) {
      if (touches_[i].kind == TouchKind::kRandom) builder.draw(id);
      if (touches_[i].kind == TouchKind::kEffect) builder.effect(id);
      if (touches_[i].kind == TouchKind::kUnknown) builder.unknown_effect(id);
    }
  }
  for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
  accesses_.resize(found.size());
  std::vector<std::uint32_t> place(begins_.begin(), begins_.end() - 1);
  for (const FoundAccess& a : found) accesses_[place[a.node.index()]++] = a.access;
}

}  // namespace epweave
