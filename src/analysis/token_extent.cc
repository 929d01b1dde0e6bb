#include "analysis/token_extent.h"

#include <algorithm>

namespace epweave {

TokenExtents::TokenExtents(const Graph& graph, Facts& facts) : facts_(facts) {
  const Body& step = graph.step();
  std::size_t input = 0;
  auto add = [&](StringId symbol) {
    if (is_token_.insert(symbol)) symbols_.push_back(symbol);
  };
  for (NodeId id : step.order) {
    const Node& node = step.nodes[id];
    if (node.kind != NodeKind::kPlaceholder) break;
    const bool is_user = input >= graph.inputs.size() || graph.text(graph.inputs[input].role) == "user" ||
                         !graph.inputs[input].role;
    ++input;
    if (node.extra)
      for (const auto& [symbol, value] : node.extra->chunk_hints) add(symbol);
    const TensorType* tensor = tensor_of(*graph.context, node.type);
    if (tensor == nullptr || tensor->sizes.empty()) continue;
    if (is_user) {
      const PolyId extent = facts.normalize(tensor->sizes[0]);
      for (StringId symbol : std::vector<StringId>(facts.pool().symbols(extent))) add(symbol);
      // Other names of the same count.
      const PolyId recorded = facts.pool().poly(tensor->sizes[0]);
      for (StringId symbol : std::vector<StringId>(facts.pool().symbols(recorded)))
        if (facts.equal(facts.pool().poly_symbol(symbol), extent)) add(symbol);
    }
    for (std::size_t dim = 0; dim < tensor->sizes.size(); ++dim) {
      const Poly& poly = facts.pool()[facts.pool().poly(tensor->sizes[dim])];
      if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) continue;
      const Rational factor = poly.terms[0].coefficient;
      const Atom& atom = facts.pool()[poly.terms[0].atoms[0]];
      if (atom.kind != AtomKind::kSymbol || !factor.is_integer() || factor.num <= 0) continue;
      const Source& known = sources_[atom.name];
      if (!known.node || (known.factor != 1 && factor.num == 1))
        sources_.at(atom.name) = {id, static_cast<int>(dim), factor.num};
    }
  }
}

bool TokenExtents::scales(PolyId extent) {
  const auto& symbols = facts_.pool().symbols(extent);
  return std::any_of(symbols.begin(), symbols.end(), [&](StringId s) { return is_token(s); });
}

bool TokenExtents::scales(ExprId extent) {
  return scales(facts_.pool().poly(extent));
}

std::optional<TokenMultiple> TokenExtents::multiple(ExprId extent) {
  const Poly& poly = facts_.pool()[facts_.normalize(extent)];
  if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return std::nullopt;
  const Term& term = poly.terms[0];
  const Atom& atom = facts_.pool()[term.atoms[0]];
  if (atom.kind != AtomKind::kSymbol || !is_token(atom.name) || !term.coefficient.is_integer() ||
      term.coefficient.num <= 0)
    return std::nullopt;
  return TokenMultiple{atom.name, term.coefficient.num};
}

bool TokenExtents::is_linear(ExprId extent) {
  const Poly& poly = facts_.pool()[facts_.normalize(extent)];
  return std::all_of(poly.terms.begin(), poly.terms.end(), [&](const Term& term) {
    std::size_t tokens = 0;
    for (AtomId id : term.atoms) {
      const Atom& atom = facts_.pool()[id];
      if (atom.kind == AtomKind::kSymbol) {
        if (is_token(atom.name)) ++tokens;
      } else if (scales(facts_.pool().from_atom(id))) {
        return false;
      }
    }
    return tokens == 1 && term.coefficient.is_integer();
  });
}

std::vector<int> TokenExtents::dimensions(const TensorType& tensor) {
  std::vector<int> dims;
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i)
    if (scales(tensor.sizes[i])) dims.push_back(static_cast<int>(i));
  return dims;
}

}  // namespace epweave
