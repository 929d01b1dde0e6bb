#include "compare/numbers.h"

namespace epweave {

Numbers::Numbers(const Graph& a, const Graph& b) : facts_(b) {
  SideTable<StringId, TypeId> types;
  for (NodeId id : b.step().order)
    if (b.step().nodes[id].kind == NodeKind::kPlaceholder)
      types.at(b.step().nodes[id].name) = b.step().nodes[id].type;
  for (NodeId id : a.step().order)
    if (const Node& node = a.step().nodes[id]; node.kind == NodeKind::kPlaceholder)
      learn(a, node.type, types[node.name]);
  // A symbol that was replaced by one that is known.
  for (const Symbol& symbol : a.symbols)
    if (symbol.replaced_by && !numbers_[symbol.name])
      if (const auto number = facts_.pool().constant(in_numbers(*symbol.replaced_by)))
        numbers_.at(symbol.name) = number;
  in_numbers_ = SideTable<ExprId, PolyId>();
}

void Numbers::learn(const Graph& graph, TypeId before, TypeId after) {
  const TensorType* x = tensor_of(*graph.context, before);
  const TensorType* y = after ? tensor_of(*graph.context, after) : nullptr;
  if (x == nullptr || y == nullptr || x->sizes.size() != y->sizes.size()) return;
  ExprPool& pool = facts_.pool();
  for (std::size_t i = 0; i < x->sizes.size(); ++i) {
    const Poly& poly = pool[pool.poly(x->sizes[i])];
    const auto number = pool.constant(y->sizes[i]);
    if (!number || poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) continue;
    const Atom& atom = pool[poly.terms[0].atoms[0]];
    if (atom.kind != AtomKind::kSymbol || !(poly.terms[0].coefficient == Rational{1, 1})) continue;
    numbers_.at(atom.name) = number;
  }
}

PolyId Numbers::in_numbers(ExprId a) {
  PolyId& known = in_numbers_.at(a);
  if (known) return known;
  ExprPool& pool = facts_.pool();
  const PolyId poly = pool.substitute(pool.poly(a), [&](StringId symbol) -> std::optional<PolyId> {
    if (!numbers_[symbol]) return std::nullopt;
    return pool.poly_number(*numbers_[symbol]);
  });
  return in_numbers_.at(a) = poly;
}

bool Numbers::is_fraction(ExprId a, ExprId b, std::uint32_t parts) {
  ExprPool& pool = facts_.pool();
  return facts_.equal(in_numbers(a), pool.scale(pool.poly(b), Rational{static_cast<std::int64_t>(parts), 1}));
}

Fraction Numbers::match(ExprId a, ExprId b, std::uint32_t parts) {
  if (a == b || is_fraction(a, b, 1)) return Fraction::kAll;
  return parts > 1 && is_fraction(a, b, parts) ? Fraction::kPart : Fraction::kNone;
}

Fraction Numbers::match_scalar(ExprId a, Arg b, std::uint32_t parts) {
  if (b.is(ArgKind::kSymbolic)) return match(a, b.as_expr(), parts);
  return b.is_int() ? match(a, facts_.pool().number(b.as_int()), parts) : Fraction::kNone;
}

}  // namespace epweave
