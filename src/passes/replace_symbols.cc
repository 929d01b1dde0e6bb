#include "passes/replace_symbols.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "ir/walk.h"
#include "ops/op.h"
#include "passes/pass.h"
#include "passes/record.h"

namespace epweave {
namespace {

// Expressions, types and arguments with the numbers in place; each expression and type is looked at
// once.
class Substitution {
 public:
  Substitution(Context& context, const SymbolNumbers& values, bool fold_all)
      : context_(context), values_(values), fold_all_(fold_all) {}

  ExprId expr(ExprId id) {
    if (ExprId known = exprs_[id]) return known;
    const auto is_replaced = [&](StringId symbol) { return values_[symbol].has_value(); };
    if (std::ranges::none_of(context_.exprs.symbols(id), is_replaced)) return exprs_.at(id) = id;
    const PolyId before = context_.exprs.poly(id);
    const PolyId after = context_.exprs.substitute(before, [&](StringId symbol) -> std::optional<PolyId> {
      if (const auto value = values_[symbol]) return context_.exprs.poly_number(*value);
      return std::nullopt;
    });
    return exprs_.at(id) = before == after ? id : context_.exprs.from_poly(after);
  }

  TypeId type(TypeId id) {
    if (!id) return id;
    if (TypeId known = types_[id]) return known;
    const TypeId mapped = map_type(id);
    types_.at(id) = mapped;
    return mapped;
  }

  // The number or truth value that a symbolic scalar of this type is now.
  std::optional<Arg> constant(TypeId id) {
    if (!id || context_.types[id].kind != TypeKind::kScalar) return std::nullopt;
    const Type& scalar = context_.types[id];
    const auto value = context_.exprs.constant(expr(scalar.expr));
    if (!value) return std::nullopt;
    const std::string_view py_type = context_.text(scalar.py_type);
    if (py_type == "SymBool") return Arg::boolean(*value != 0);
    if (py_type == "SymFloat") return Arg::real(static_cast<double>(*value));
    return Arg::integer(*value);
  }

  // A leaf that names no node.
  Arg leaf(Arg arg) {
    if (arg.is(ArgKind::kTypeRef)) return Arg::type_ref(type(arg.as_type()));
    if (!arg.is(ArgKind::kSymbolic)) return arg;
    const ExprId after = expr(arg.as_expr());
    const auto value = context_.exprs.constant(after);
    if (!value) return Arg::symbolic(after);
    return is_condition(arg.as_expr()) ? Arg::boolean(*value != 0) : Arg::integer(*value);
  }

  ArgRange data(ArgRange range) {
    return context_.args.map(range, [&](Arg arg) { return leaf(arg); });
  }

 private:
  TypeId map_type(TypeId id) {
    const Type& before = context_.types[id];
    if (before.kind == TypeKind::kScalar && (fold_all_ || !context_.exprs.constant(before.expr))) {
      if (const auto value = constant(id))
        return context_.types.intern({.kind = TypeKind::kValue, .value = *value});
    }
    Type after = before;
    for (ExprId& size : after.tensor.sizes) size = expr(size);
    for (ExprId& stride : after.tensor.strides) stride = expr(stride);
    if (after.tensor.offset) after.tensor.offset = expr(after.tensor.offset);
    if (after.tensor.offset != before.tensor.offset && context_.exprs.constant(after.tensor.offset) == 0)
      after.tensor.offset = {};
    if (after.expr) after.expr = expr(after.expr);
    for (TypeId& element : after.elements) element = type(element);
    return after == before ? id : context_.types.intern(std::move(after));
  }

  bool is_condition(ExprId id) const {
    const Poly& poly = context_.exprs[context_.exprs.poly(id)];
    if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return false;
    const AtomKind kind = context_.exprs[poly.terms[0].atoms[0]].kind;
    return kind >= AtomKind::kEq && kind <= AtomKind::kNot;
  }

  Context& context_;
  const SymbolNumbers& values_;
  bool fold_all_;
  SideTable<ExprId, ExprId> exprs_;
  SideTable<TypeId, TypeId> types_;
};

// --------------------------------------------------------------------------- one body

class BodyReplacer {
 public:
  BodyReplacer(Graph& graph, const SymbolNumbers& values, const Replacement& replacement,
               Substitution& substitution)
      : graph_(graph),
        context_(*graph.context),
        values_(values),
        replacement_(replacement),
        substitution_(substitution) {
    pass_ = graph.intern(replacement.pass);
    reason_ = graph.intern(replacement.reason);
    assert_target_ = graph.context->strings.find("aten._assert_scalar.default");
  }

  void run(Body& body) {
    constants_ = SideTable<NodeId, std::optional<Arg>>();
    std::vector<NodeId> order;
    for (const auto [id, row] : walk_extras(context_, body)) {
      Node& node = body.nodes[id];
      if (auto constant = substitution_.constant(node.type); constant && is_folded(node.type))
        constants_.at(id) = constant;
      const bool is_changed = rewrite(node);
      if (is_dropped(node, constants_[id].has_value())) continue;
      if (is_changed && &body == &graph_.step()) record_specialized(*graph_.context, node, pass_, reason_);
      order.push_back(id);
    }
    body.order = std::move(order);
  }

 private:
  bool is_folded(TypeId scalar) const {
    return replacement_.fold_all || !context_.exprs.constant(context_.types[scalar].expr);
  }

  // Whether anything but notes about chunk symbols changed.
  bool rewrite(Node& node) {
    const auto before = std::tuple(node.args, node.kwargs, node.type);
    node.args = arguments(node.args);
    node.kwargs = arguments(node.kwargs);
    node.type = substitution_.type(node.type);
    if (node.attr.is_tree() || node.attr.is(ArgKind::kTypeRef))
      node.attr = context_.args.map(node.attr, [&](Arg arg) { return substitution_.leaf(arg); });
    rewrite_extra(node);
    return before != std::tuple(node.args, node.kwargs, node.type);
  }

  ArgRange arguments(ArgRange range) {
    return context_.args.map(range, [&](Arg arg) {
      if (arg.is_node()) return constants_[arg.as_node()].value_or(arg);
      return substitution_.leaf(arg);
    });
  }

  void rewrite_extra(Node& node) {
    if (!node.extra) return;
    const NodeExtra& before = *node.extra;
    const ArgRange custom = substitution_.data(before.custom), meta = substitution_.data(before.meta);
    const TypeId example_type = substitution_.type(before.example_type);
    const bool is_same = before.bindings.empty() && before.chunk_hints.empty() && custom == before.custom &&
                         meta == before.meta && example_type == before.example_type;
    if (is_same) return;
    NodeExtra extra = before;
    std::erase_if(extra.bindings, [&](const Binding& b) { return values_[b.symbol].has_value(); });
    for (Binding& binding : extra.bindings) binding.path = substitution_.data(binding.path);
    std::erase_if(extra.chunk_hints, [&](const auto& hint) { return values_[hint.first].has_value(); });
    extra.custom = custom;
    extra.meta = meta;
    extra.example_type = example_type;
    node.extra = graph_.context->own(std::move(extra));
  }

  // Calls that computed what is a number now, and guards that hold.
  bool is_dropped(const Node& node, bool is_constant) const {
    if (node.kind != NodeKind::kCall) return false;
    if (is_constant) return is_scalar_arithmetic(node);
    return assert_target_ && node.target == assert_target_ && holds(node);
  }

  bool is_scalar_arithmetic(const Node& node) const {
    if (node.op != nullptr)
      return node.op->cost == CostClass::kFree && !node.op->writes && !node.op->is_effectful;
    const std::string_view target = context_.text(node.target);
    return target.starts_with("operator.") || target.starts_with("aten.sym_") ||
           target.starts_with("torch.sym_");
  }

  bool holds(const Node& guard) const {
    const auto args = context_.args[guard.args];
    if (args.empty()) return false;
    const bool is_known = args[0].is(ArgKind::kBool) || args[0].is_int();
    if (is_known && args[0].bits() == 0)
      throw PassError(fmt::format("{}.false-guard", replacement_.pass),
                      fmt::format("the guard does not hold for {}", replacement_.reason),
                      site_of(graph_, guard), replacement_.remedy);
    return is_known;
  }

  Graph& graph_;
  Context& context_;
  const SymbolNumbers& values_;
  const Replacement& replacement_;
  Substitution& substitution_;
  SideTable<NodeId, std::optional<Arg>> constants_;
  StringId pass_, reason_, assert_target_;
};

// --------------------------------------------------------------------------- tables

class TableReplacer {
 public:
  TableReplacer(Graph& graph, const SymbolNumbers& values, const Replacement& replacement,
                Substitution& substitution)
      : graph_(graph), values_(values), replacement_(replacement), substitution_(substitution) {}

  void run() {
    for (Symbol& symbol : graph_.symbols) rewrite(symbol);
    std::erase_if(graph_.symbols, [&](const Symbol& symbol) { return values_[symbol.name].has_value(); });
    for (InputRole& input : graph_.inputs) input.more = substitution_.data(input.more);
    for (OutputRole& output : graph_.outputs) output.more = substitution_.data(output.more);
  }

 private:
  void rewrite(Symbol& symbol) {
    if (symbol.asserts) keep_open(symbol, *symbol.asserts);
    keep_open(symbol, symbol.assumptions);
    if (symbol.lower) symbol.lower = substitution_.expr(*symbol.lower);
    if (symbol.upper) symbol.upper = substitution_.expr(*symbol.upper);
    if (symbol.replaced_by) symbol.replaced_by = substitution_.expr(*symbol.replaced_by);
  }

  // Drops what the numbers prove.
  void keep_open(const Symbol& symbol, std::vector<ExprId>& facts) {
    const ExprPool& exprs = graph_.context->exprs;
    std::vector<ExprId> open;
    for (ExprId fact : facts) {
      const ExprId now = substitution_.expr(fact);
      const auto value = now == fact ? std::nullopt : exprs.constant(now);
      if (value == 0)
        throw PassError(fmt::format("{}.false-guard", replacement_.pass),
                        fmt::format("{}, recorded about {}, does not hold for {}", exprs.text(fact),
                                    graph_.text(symbol.name), replacement_.reason),
                        {}, replacement_.remedy);
      if (!value) open.push_back(now);
    }
    facts = std::move(open);
  }

  Graph& graph_;
  const SymbolNumbers& values_;
  const Replacement& replacement_;
  Substitution& substitution_;
};

}  // namespace

void replace_symbols(Graph& graph, const SymbolNumbers& numbers, const Replacement& replacement) {
  Substitution substitution(*graph.context, numbers, replacement.fold_all);
  BodyReplacer bodies(graph, numbers, replacement, substitution);
  for (Body& body : graph.bodies) bodies.run(body);
  TableReplacer(graph, numbers, replacement, substitution).run();
}

}  // namespace epweave
