#include "analysis/type_symbols.h"

#include <algorithm>

namespace epweave {

const std::vector<StringId>& TypeSymbols::of(TypeId id) {
  auto [found, is_new] = symbols_.try_emplace(id);
  if (is_new) found->second = collect(context_.types[id]);
  return found->second;
}

std::vector<StringId> TypeSymbols::collect(const Type& type) const {
  std::vector<StringId> symbols;
  for_each_expr(type, [&](ExprId expr) {
    const auto& found = context_.exprs.symbols(expr);
    symbols.insert(symbols.end(), found.begin(), found.end());
  });
  for (TypeId element : type.elements)
    if (element)
      for (StringId symbol : collect(context_.types[element])) symbols.push_back(symbol);
  std::sort(symbols.begin(), symbols.end());
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  return symbols;
}

namespace {

class MentionedSymbols {
 public:
  explicit MentionedSymbols(const Graph& graph) : graph_(graph), context_(*graph.context), types_(context_) {}

  IdSet<StringId> run() {
    for (const Body& body : graph_.bodies)
      for (NodeId id : body.order) add(body.nodes[id]);
    std::unordered_map<StringId, const Symbol*> rows;
    for (const Symbol& symbol : graph_.symbols) rows.emplace(symbol.name, &symbol);
    while (!pending_.empty()) {
      const auto row = rows.find(pending_.back());
      pending_.pop_back();
      if (row != rows.end()) add(*row->second);
    }
    return std::move(found_);
  }

 private:
  void add(StringId symbol) {
    if (symbol && found_.insert(symbol)) pending_.push_back(symbol);
  }
  void add(ExprId expr) {
    for (StringId symbol : context_.exprs.symbols(expr)) add(symbol);
  }
  void add(ArgRange range) {
    for (Arg arg : context_.args[range]) {
      if (arg.is(ArgKind::kSymbolic)) add(arg.as_expr());
      if (arg.is_tree()) add(arg.children());
    }
  }
  void add(const Node& node) {
    if (node.type)
      for (StringId symbol : types_.of(node.type)) add(symbol);
    add(node.args);
    add(node.kwargs);
    if (node.extra == nullptr) return;
    for (const Binding& binding : node.extra->bindings) add(binding.symbol);
    for (const auto& [symbol, value] : node.extra->chunk_hints) add(symbol);
  }
  void add(const Symbol& symbol) {
    if (symbol.lower) add(*symbol.lower);
    if (symbol.upper) add(*symbol.upper);
    if (symbol.replaced_by) add(*symbol.replaced_by);
    if (symbol.asserts)
      for (ExprId fact : *symbol.asserts) add(fact);
    for (ExprId fact : symbol.assumptions) add(fact);
  }

  const Graph& graph_;
  Context& context_;
  TypeSymbols types_;
  IdSet<StringId> found_;
  std::vector<StringId> pending_;
};

}  // namespace

IdSet<StringId> mentioned_symbols(const Graph& graph) {
  return MentionedSymbols(graph).run();
}

}  // namespace epweave
