#include "placement/token_extent.h"

#include <algorithm>

namespace epweave {

namespace {

bool is_user_input(const Graph& graph, std::size_t position) {
  return position >= graph.inputs.size() || !graph.inputs[position].role ||
         graph.text(graph.inputs[position].role) == "user";
}

// Token numbers [batch, sequence], or activations [batch, sequence, width].
bool is_grid(const TensorType& tensor) {
  return tensor.rank() >= (is_floating(tensor.dtype) ? 3U : 2U);
}

// Whether a user input is a grid with a symbol in front or behind: without, all tokens come in one
// row.
bool find_symbolic_grid(const Graph& graph, const ExprPool& exprs) {
  std::size_t position = 0;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind != NodeKind::kPlaceholder) break;
    const TensorType* tensor = tensor_of(*graph.context, node.type);
    if (!is_user_input(graph, position++) || tensor == nullptr || !is_grid(*tensor)) continue;
    if (!exprs.constant(tensor->sizes[0]) || !exprs.constant(tensor->sizes[1])) return true;
  }
  return false;
}

}  // namespace

void TokenExtents::add_symbols(ExprId extent) {
  auto add = [&](StringId symbol) {
    if (is_token_.insert(symbol)) symbols_.push_back(symbol);
  };
  const PolyId normal = facts_.normalize(extent);
  for (StringId symbol : std::vector<StringId>(facts_.pool().symbols(normal))) add(symbol);
  // Other names of the same count.
  for (StringId symbol : std::vector<StringId>(facts_.pool().symbols(facts_.pool().poly(extent))))
    if (facts_.equal(facts_.pool().poly_symbol(symbol), normal)) add(symbol);
}

TokenExtents::TokenExtents(const Graph& graph, Facts& facts, GridDim grid_dim)
    : facts_(facts),
      has_symbolic_grid_(find_symbolic_grid(graph, facts.pool())),
      is_inner_(grid_dim == GridDim::kSequence && has_symbolic_grid_) {
  const Body& step = graph.step();
  std::size_t input = 0;
  for (NodeId id : step.order) {
    const Node& node = step.nodes[id];
    if (node.kind != NodeKind::kPlaceholder) break;
    const bool is_user = is_user_input(graph, input++);
    if (node.extra)
      for (const auto& [symbol, value] : node.extra->chunk_hints)
        if (is_token_.insert(symbol)) symbols_.push_back(symbol);
    const TensorType* tensor = tensor_of(*graph.context, node.type);
    if (tensor == nullptr || tensor->sizes.empty()) continue;
    if (is_user && (!is_inner_ || is_grid(*tensor))) add_symbols(tensor->sizes[is_inner_ ? 1 : 0]);
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

bool TokenExtents::is_shared(ExprId extent) {
  const auto& symbols = facts_.pool().symbols(facts_.pool().poly(extent));
  return std::any_of(symbols.begin(), symbols.end(),
                     [&](StringId s) { return is_token(s) && sources_[s].factor != 1; });
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
