#include "passes/concretize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "ir/walk.h"
#include "ops/op.h"
#include "ops/type_memo.h"
#include "ops/type_rules.h"
#include "passes/replace_symbols.h"

namespace epweave {
namespace {

// --------------------------------------------------------------------------- which symbols are
// which numbers

class TokenSymbols {
 public:
  explicit TokenSymbols(const Graph& graph) : graph_(graph) {
    read_chunk_hints();
    read_placeholder_extents();
    read_replacements();
  }

  bool empty() const { return names_.empty(); }
  const SymbolNumbers& numbers() const { return values_; }

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
              fmt::format("{} is noted as {} and as {}", graph_.text(symbol), *values_[symbol], value),
              site_of(graph_, node), "chunk the graph again: a symbol has one number in the whole graph");
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
      throw PassError("concretize.no-hint",
                      fmt::format("an extent of {} is {}, whose number when it was traced is not recorded",
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
  SymbolNumbers values_;
  std::vector<StringId> names_;
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
    types_.emplace(facts_);
    types_before_.emplace(facts_before_);
    IdSet<NodeId> restated(body.nodes.size());
    const auto& nodes = std::as_const(body.nodes);  // to read: asked to be changed, pages are copied
    for (const auto [id, node] : walk(context_, body)) {
      if (!has_type_rule(node)) continue;
      const auto changed_unit = [&](NodeId value) {
        return before.nodes[value].type != nodes[value].type && has_unit_extent(nodes[value].type);
      };
      bool is_concerned = changed_unit(id);
      for_each_input(context_, node, [&](NodeId input) {
        is_concerned = is_concerned || changed_unit(input) || restated.contains(input);
      });
      if (!is_concerned) continue;
      if (const TypeId type = restate(before, body, id)) {
        body.nodes[id].type = type;
        restated.insert(id);
      }
    }
  }

 private:
  // The node's type as it is to be; none: it stays.
  TypeId restate(const Body& before, const Body& body, NodeId id) {
    const Node& node = body.nodes[id];
    try {
      const TypeId inferred = types_->infer(graph_, body, node);
      if (!inferred || inferred == node.type) return {};
      const TypeId type = with_layout(node.type, inferred);
      if (type == node.type) return {};
      if (!differ_in_unit_strides(type, node.type) && !was_inferred(before, before.nodes[id])) return {};
      return type;
    } catch (const TypeMismatch&) {
      return {};  // not typed by its arguments before either: verify reports it
    }
  }

  // Whether the type that was recorded is what its arguments gave.
  bool was_inferred(const Body& body, const Node& node) {
    const TypeId inferred = types_before_->infer(before_, body, node);
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
  std::optional<TypeMemo> types_before_, types_;  // of a body
  SideTable<TypeId, std::optional<bool>> has_unit_extent_;
};

}  // namespace

PassResult concretize(const Graph& graph) {
  const TokenSymbols values(graph);
  if (values.empty()) return {graph, {"no token symbols"}};
  PassResult result{graph, {values.print()}};
  replace_symbols(result.graph, values.numbers(),
                  {.pass = "concretize",
                   .reason = values.print(),
                   .remedy = "trace the graph with the number of tokens it is to run with"});
  StrideRestater strides(graph, result.graph);
  for (std::size_t i = 0; i < graph.bodies.size(); ++i) strides.run(graph.bodies[i], result.graph.bodies[i]);
  return result;
}

}  // namespace epweave
