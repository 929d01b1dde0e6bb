#include "passes/concretize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "ir/walk.h"
#include "ops/op.h"
#include "ops/type_rules.h"
#include "passes/record.h"

namespace epweave {
namespace {

// --------------------------------------------------------------------------- which symbols are which numbers

class TokenSymbols {
 public:
  explicit TokenSymbols(const Graph& graph) : graph_(graph) {
    read_chunk_hints();
    read_placeholder_extents();
    read_replacements();
  }

  bool empty() const { return names_.empty(); }
  std::optional<std::int64_t> operator[](StringId symbol) const { return values_[symbol]; }

  // "u0 = 1024, u1 = 1024".
  std::string print() const {
    std::vector<std::string> items;
    for (StringId name : names_) items.push_back(fmt::format("{} = {}", graph_.text(name), *values_[name]));
    return fmt::format("{}", fmt::join(items, ", "));
  }

 private:
  void set(StringId symbol, std::int64_t value) {
    if (values_[symbol]) return;
    values_.at(symbol) = value;
    names_.push_back(symbol);
  }

  void read_chunk_hints() {
    for (const auto [id, node] : walk_extras(*graph_.context, graph_.step())) {
      if (!node.extra) continue;
      for (const auto& [symbol, value] : node.extra->chunk_hints) {
        if (values_[symbol].value_or(value) != value)
          throw PassError(
              "concretize.hint-conflict",
              fmt::format("{} is noted as {} and as {} (C-5)", graph_.text(symbol), *values_[symbol], value),
              site_of(graph_, node), "chunk the graph again");
        set(symbol, value);
      }
    }
  }

  void read_placeholder_extents() {
    const Body& step = graph_.step();
    const bool is_chunked =
        !names_.empty() || std::any_of(step.order.begin(), step.order.end(),
                                       [&](NodeId id) { return step.nodes[id].chunk.region.valid(); });
    for (NodeId id : graph_.step().order) {
      const Node& node = graph_.step().nodes[id];
      if (node.kind != NodeKind::kPlaceholder) break;
      const TensorType* tensor = tensor_of(*graph_.context, node.type);
      if (tensor == nullptr) continue;
      for (ExprId size : tensor->sizes)
        for (StringId symbol : graph_.context->exprs.symbols(size)) read_extent(node, symbol, is_chunked);
    }
  }

  void read_extent(const Node& node, StringId symbol, bool is_chunked) {
    if (values_[symbol]) return;
    const Symbol* row = find_symbol(symbol);
    if (row != nullptr && row->hint) return set(symbol, *row->hint);
    if (is_chunked)
      throw PassError(
          "concretize.no-hint",
          fmt::format("an extent of {} is {}, whose number when it was traced is not recorded (N-1)",
                      graph_.text(node.name), graph_.text(symbol)),
          site_of(graph_, node), "export the graph with symbol hints");
  }

  // Symbols that equal others: u1 = u0.
  void read_replacements() {
    for (bool changed = true; std::exchange(changed, false);)
      for (const Symbol& symbol : graph_.symbols) {
        if (values_[symbol.name] || !symbol.replaced_by) continue;
        const auto& exprs = graph_.context->exprs;
        const auto value =
            exprs.evaluate(exprs.poly(*symbol.replaced_by), [&](StringId s) { return values_[s]; });
        if (!value || !value->is_integer()) continue;
        set(symbol.name, value->num);
        changed = true;
      }
  }

  const Symbol* find_symbol(StringId name) const {
    for (const Symbol& symbol : graph_.symbols)
      if (symbol.name == name) return &symbol;
    return nullptr;
  }

  const Graph& graph_;
  SideTable<StringId, std::optional<std::int64_t>> values_;
  std::vector<StringId> names_;
};

// --------------------------------------------------------------------------- substitution

// Expressions, types and arguments with the numbers in place; each expression and type is looked at once.
class Substitution {
 public:
  Substitution(Context& context, const TokenSymbols& values) : context_(context), values_(values) {}

  ExprId expr(ExprId id) {
    if (ExprId known = exprs_[id]) return known;
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
    if (before.kind == TypeKind::kScalar) {
      if (const auto value = constant(id))
        return context_.types.intern({.kind = TypeKind::kValue, .value = *value});
    }
    Type after = before;
    for (ExprId& size : after.tensor.sizes) size = expr(size);
    for (ExprId& stride : after.tensor.strides) stride = expr(stride);
    if (after.tensor.offset) after.tensor.offset = expr(after.tensor.offset);
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
  const TokenSymbols& values_;
  SideTable<ExprId, ExprId> exprs_;
  SideTable<TypeId, TypeId> types_;
};

// --------------------------------------------------------------------------- one body

class BodyConcretizer {
 public:
  BodyConcretizer(Graph& graph, const TokenSymbols& values, Substitution& substitution)
      : graph_(graph), context_(*graph.context), values_(values), substitution_(substitution) {
    pass_ = graph.intern("concretize");
    reason_ = graph.intern(values.print());
    assert_target_ = graph.context->strings.find("aten._assert_scalar.default");
  }

  void run(Body& body) {
    constants_ = SideTable<NodeId, std::optional<Arg>>();
    std::vector<NodeId> order;
    for (const auto [id, row] : walk_extras(context_, body)) {
      Node& node = body.nodes[id];
      if (auto constant = substitution_.constant(node.type)) constants_.at(id) = constant;
      const bool is_changed = rewrite(node);
      if (is_dropped(node, constants_[id].has_value())) continue;
      if (is_changed && &body == &graph_.step()) record_specialized(*graph_.context, node, pass_, reason_);
      order.push_back(id);
    }
    body.order = std::move(order);
  }

 private:
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
    extra.chunk_hints.clear();
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
      throw PassError("concretize.false-guard",
                      fmt::format("the guard does not hold for {} (N-2)", values_.print()),
                      site_of(graph_, guard), "trace the graph with the number of tokens it is to run with");
    return is_known;
  }

  Graph& graph_;
  Context& context_;
  const TokenSymbols& values_;
  Substitution& substitution_;
  SideTable<NodeId, std::optional<Arg>> constants_;
  StringId pass_, reason_, assert_target_;
};

// --------------------------------------------------------------------------- tables

class TableConcretizer {
 public:
  TableConcretizer(Graph& graph, const TokenSymbols& values, Substitution& substitution)
      : graph_(graph), values_(values), substitution_(substitution) {}

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
        throw PassError("concretize.false-guard",
                        fmt::format("{}, recorded about {}, does not hold for {} (N-2)", exprs.text(fact),
                                    graph_.text(symbol.name), values_.print()),
                        {}, "trace the graph with the number of tokens it is to run with");
      if (!value) open.push_back(now);
    }
    facts = std::move(open);
  }

  Graph& graph_;
  const TokenSymbols& values_;
  Substitution& substitution_;
};

// --------------------------------------------------------------------------- strides

// Dimensions of extent 1 have other strides among numbers than among symbols, and an extent that
// became 1 is such a dimension. A view keeps the stride of one where it would have written 0 or a
// product. Nothing ever steps along it, but a type has one spelling:
//
//   x : f32[b, 8]{0, 1} = expand(y : f32[1, 8]{8, 1})                    b = 1: {8, 1}
//
// And what had to be copied may be a view:
//
//   x : f32[6*b, 4] = reshape(y : f32[6, b, 4]{8, 48, 1}+4, [-1, 4])     b = 1: {8, 1}+4
//
// Takes strides and offsets from the type rules where these gave what was recorded before, or where
// they differ in dimensions of extent 1 alone; other recorded values stay as they are (G5).
class StrideRestater {
 public:
  StrideRestater(const Graph& before, Graph& after)
      : before_(before), graph_(after), context_(*after.context), facts_before_(before), facts_(after) {}

  // A body of the two graphs.
  void run(const Body& before, Body& body) {
    IdSet<NodeId> restated(body.nodes.size());
    for (const auto [id, row] : walk(context_, body)) {
      const Node& node = body.nodes[id];
      if (!has_type_rule(node)) continue;
      const auto changed_unit = [&](NodeId value) {
        return before.nodes[value].type != body.nodes[value].type && has_unit_extent(body.nodes[value].type);
      };
      bool is_concerned = changed_unit(id);
      for_each_input(context_, node, [&](NodeId input) {
        is_concerned = is_concerned || changed_unit(input) || restated.contains(input);
      });
      if (is_concerned && restate(before, body, id)) restated.insert(id);
    }
  }

 private:
  // Whether that changed something.
  bool restate(const Body& before, Body& body, NodeId id) {
    Node& node = body.nodes[id];
    try {
      const TypeId inferred = infer_type(facts_, graph_, body, node);
      if (!inferred || inferred == node.type) return false;
      const TypeId type = with_layout(node.type, inferred);
      if (type == node.type) return false;
      if (!differ_in_unit_strides(type, node.type) && !was_inferred(before, before.nodes[id])) return false;
      node.type = type;
      return true;
    } catch (const TypeMismatch&) {
      return false;  // not typed by its arguments before either: verify reports it
    }
  }

  // Whether the type that was recorded is what its arguments gave.
  bool was_inferred(const Body& body, const Node& node) {
    const TypeId inferred = infer_type(facts_before_, before_, body, node);
    return inferred && node.type && same_type(facts_before_, context_, inferred, node.type);
  }

  bool is_one(ExprId size) const { return context_.exprs.constant(size) == 1; }

  bool has_unit_extent(TypeId id) {
    if (!id) return false;
    if (const auto known = has_unit_extent_[id]) return *known;
    const Type& type = context_.types[id];
    bool found = std::ranges::any_of(type.tensor.sizes, [&](ExprId size) { return is_one(size); });
    for (TypeId element : type.elements) found = has_unit_extent(element) || found;
    has_unit_extent_.at(id) = found;
    return found;
  }

  // The type with strides and offsets of another one, wherever the two have the same sizes.
  TypeId with_layout(TypeId id, TypeId layout) {
    if (id == layout || !id || !layout) return id;
    Type type = context_.types[id];
    const Type& other = context_.types[layout];
    if (type.kind != other.kind || type.elements.size() != other.elements.size()) return id;
    if (type.tensor.sizes == other.tensor.sizes &&
        type.tensor.strides.size() == other.tensor.strides.size()) {
      type.tensor.strides = other.tensor.strides;
      type.tensor.offset = other.tensor.offset;
    }
    for (std::size_t i = 0; i < type.elements.size(); ++i)
      type.elements[i] = with_layout(type.elements[i], other.elements[i]);
    return context_.types.intern(std::move(type));
  }

  // Equal but for strides of dimensions of extent 1.
  bool differ_in_unit_strides(TypeId a_id, TypeId b_id) const {
    if (a_id == b_id) return true;
    if (!a_id || !b_id) return false;
    Type a = context_.types[a_id];
    const Type& b = context_.types[b_id];
    if (a.elements.size() != b.elements.size() || a.tensor.strides.size() != b.tensor.strides.size())
      return false;
    for (std::size_t i = 0; i < a.elements.size(); ++i)
      if (!differ_in_unit_strides(a.elements[i], b.elements[i])) return false;
    for (std::size_t i = 0; i < a.tensor.strides.size(); ++i)
      if (is_one(a.tensor.sizes[i])) a.tensor.strides[i] = b.tensor.strides[i];
    a.elements = b.elements;
    return a == b;
  }

  const Graph& before_;
  Graph& graph_;
  Context& context_;
  Facts facts_before_, facts_;
  SideTable<TypeId, std::optional<bool>> has_unit_extent_;
};

}  // namespace

PassResult concretize(const Graph& graph) {
  const TokenSymbols values(graph);
  if (values.empty()) return {graph, {"no token symbols"}};
  PassResult result{graph, {values.print()}};
  Substitution substitution(*graph.context, values);
  BodyConcretizer bodies(result.graph, values, substitution);
  for (Body& body : result.graph.bodies) bodies.run(body);
  TableConcretizer(result.graph, values, substitution).run();
  StrideRestater strides(graph, result.graph);
  for (std::size_t i = 0; i < graph.bodies.size(); ++i) strides.run(graph.bodies[i], result.graph.bodies[i]);
  return result;
}

}  // namespace epweave
