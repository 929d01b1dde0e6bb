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
    const Rational factor = poly.terms[0].coefficient;
    if (atom.kind != AtomKind::kSymbol || !factor.is_integer() || *number % factor.num != 0) continue;
    numbers_.at(atom.name) = *number / factor.num;
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

void Numbers::learn_division(ExprId whole, std::span<const ExprId> parts) {
  ExprPool& pool = facts_.pool();
  Division division{in_numbers(whole), {}};
  PolyId sum = pool.poly_number(0);
  for (ExprId part : parts) {
    division.parts.push_back(pool.poly(part));
    sum = pool.add(sum, division.parts.back());
  }
  if (!facts_.equal(sum, division.whole)) return;
  for (StringId symbol : std::vector<StringId>(pool.symbols(whole)))
    divisions_.try_emplace({symbol, parts.size()}, division);
}

const Numbers::Division* Numbers::find_division(ExprId a, std::uint32_t parts) {
  for (StringId symbol : facts_.pool().symbols(a))
    if (auto found = divisions_.find({symbol, parts}); found != divisions_.end()) return &found->second;
  return nullptr;
}

bool Numbers::is_share(ExprId a, ExprId b, Share share) {
  ExprPool& pool = facts_.pool();
  const PolyId x = in_numbers(a), y = pool.poly(b);
  const Division* division = share.parts > 1 ? find_division(a, share.parts) : nullptr;
  if (division == nullptr) return facts_.equal(x, pool.scale(y, Rational{std::int64_t{share.parts}, 1}));
  return facts_.equal(pool.mul(y, division->whole), pool.mul(x, division->parts[share.part]));
}

Fraction Numbers::match(ExprId a, ExprId b, Share share) {
  if (a == b || is_share(a, b, {})) return Fraction::kAll;
  return share.parts > 1 && is_share(a, b, share) ? Fraction::kPart : Fraction::kNone;
}

Fraction Numbers::match_scalar(ExprId a, Arg b, Share share) {
  if (b.is(ArgKind::kSymbolic)) return match(a, b.as_expr(), share);
  return b.is_int() ? match(a, facts_.pool().number(b.as_int()), share) : Fraction::kNone;
}

}  // namespace epweave
