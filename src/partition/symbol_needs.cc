#include "partition/symbol_needs.h"

#include <algorithm>
#include <unordered_map>

#include "analysis/type_symbols.h"

namespace epweave {
namespace {

class SymbolNeeds {
 public:
  SymbolNeeds(const Graph& graph, const NodeLists& inputs)
      : context_(*graph.context), body_(graph.step()), inputs_(inputs), type_symbols_(*graph.context) {
    for (const Symbol& symbol : graph.symbols)
      if (symbol.replaced_by) replaced_.emplace(symbol.name, *symbol.replaced_by);
  }

  std::vector<SymbolNeed> run() {
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (node.extra != nullptr)
        for (const Binding& binding : node.extra->bindings) binders_.at(binding.symbol) = id;
      if (node.kind == NodeKind::kPlaceholder) {
        bind_type(id);
      } else {
        add_needs(id);
      }
    }
    return std::move(needs_);
  }

 private:
  void bind_type(NodeId id) {
    if (!body_.nodes[id].type) return;
    for (StringId symbol : type_symbols_.of(body_.nodes[id].type))
      if (!binders_[symbol]) binders_.at(symbol) = id;
  }

  void add_needs(NodeId id) {
    const Node& node = body_.nodes[id];
    mentioned_.clear();
    if (node.type && !is_type_of_operand(id)) mention(type_symbols_.of(node.type));
    mention_arguments(node.args);
    mention_arguments(node.kwargs);
    for (std::size_t i = 0; i < mentioned_.size(); ++i)
      if (const StringId symbol = mentioned_[i]; !is_brought(id, symbol)) add_need(id, symbol);
  }

  void mention(const std::vector<StringId>& symbols) {
    for (StringId symbol : symbols)
      if (std::ranges::find(mentioned_, symbol) == mentioned_.end()) mentioned_.push_back(symbol);
  }
  void mention_arguments(ArgRange range) {
    for (Arg arg : context_.args[range]) {
      if (arg.is(ArgKind::kSymbolic)) mention(context_.exprs.symbols(arg.as_expr()));
      if (arg.is_tree()) mention_arguments(arg.children());
    }
  }

  bool is_type_of_operand(NodeId id) const {
    return std::ranges::any_of(inputs_[id],
                               [&](NodeId input) { return body_.nodes[input].type == body_.nodes[id].type; });
  }
  bool is_brought(NodeId id, StringId symbol) {
    return std::ranges::any_of(inputs_[id], [&](NodeId input) {
      return body_.nodes[input].type &&
             std::ranges::binary_search(type_symbols_.of(body_.nodes[input].type), symbol);
    });
  }

  // A symbol that equals others needs what binds those.
  void add_need(NodeId id, StringId symbol) {
    const auto replaced = replaced_.find(symbol);
    if (const NodeId binder = binders_[symbol]) {
      if (binder != id) needs_.push_back({id, symbol, binder});
    } else if (replaced != replaced_.end()) {
      mention(context_.exprs.symbols(replaced->second));
    }
  }

  Context& context_;
  const Body& body_;
  const NodeLists& inputs_;
  TypeSymbols type_symbols_;
  std::unordered_map<StringId, ExprId> replaced_;
  SideTable<StringId, NodeId> binders_;
  std::vector<StringId> mentioned_;
  std::vector<SymbolNeed> needs_;
};

}  // namespace

std::vector<SymbolNeed> find_symbol_needs(const Graph& graph, const NodeLists& inputs) {
  return SymbolNeeds(graph, inputs).run();
}

}  // namespace epweave
