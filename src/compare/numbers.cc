#include "compare/numbers.h"

namespace epweave {

Numbers::Numbers(const Graph& a, const Graph& b) : facts_(b) {
  SideTable<StringId, TypeId> types;
  for (NodeId id : b.step().order)
    if (b.step().nodes[id].kind == NodeKind::kPlaceholder)
      types.at(b.step().nodes[id].name) = b.step().nodes[id].type;
  for (NodeId id : a.step().order) {
    const Node& node = a.step().nodes[id];
    if (node.kind != NodeKind::kPlaceholder) continue;
    if (types[node.name]) learn(*a.context, node.type, types[node.name]);
  }
  // A symbol that was replaced by one that is known.
  for (const Symbol& symbol : a.symbols)
    if (symbol.replaced_by && !numbers_[symbol.name])
      if (const auto number = facts_.pool().constant(in_numbers(*symbol.replaced_by)))
        numbers_.at(symbol.name) = number;
  in_numbers_ = SideTable<ExprId, PolyId>();
}

void Numbers::learn(const Context& context, TypeId before, TypeId after) {
  const TensorType *x = tensor_of(context, before), *y = tensor_of(context, after);
  if (x == nullptr || y == nullptr || x->sizes.size() != y->sizes.size()) return;
  const ExprPool& pool = context.exprs;
  for (std::size_t i = 0; i < x->sizes.size(); ++i) {
    if (x->sizes[i] == y->sizes[i]) continue;
    std::optional<std::int64_t> number = pool.constant(x->sizes[i]);
    if (!number) number = pool.constant(y->sizes[i]);
    if (!number) number = assumed_number(y->sizes[i]);
    if (!number) continue;
    if (const auto known = solve(x->sizes[i], *number)) numbers_.at(known->symbol) = known->number;
    if (const auto known = solve(y->sizes[i], *number)) {
      numbers_b_.at(known->symbol) = known->number;
      facts_.assume_number(known->symbol, known->number);
    }
  }
}

std::optional<std::int64_t> Numbers::assumed_number(ExprId b) {
  const auto number = facts_.pool().evaluate(facts_.pool().poly(b),
                                             [&](StringId symbol) { return facts_.assumed_value(symbol); });
  return number && number->is_integer() ? std::optional(number->num) : std::nullopt;
}

std::optional<Numbers::Known> Numbers::solve(ExprId expr, std::int64_t number) const {
  const ExprPool& pool = facts_.pool();
  const Poly& poly = pool[pool.poly(expr)];
  if (poly.terms.size() != 1 || poly.terms[0].atoms.size() != 1) return std::nullopt;
  const Atom& atom = pool[poly.terms[0].atoms[0]];
  const Rational factor = poly.terms[0].coefficient;
  if (atom.kind != AtomKind::kSymbol || !factor.is_integer() || number % factor.num != 0) return std::nullopt;
  return Known{atom.name, number / factor.num};
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

bool Numbers::is_same_statement(ExprId a, ExprId b) {
  if (a == b) return true;
  ExprPool& pool = facts_.pool();
  const PolyId statement = pool.substitute(pool.poly(b), [&](StringId symbol) -> std::optional<PolyId> {
    if (!numbers_b_[symbol]) return std::nullopt;
    return pool.poly_number(*numbers_b_[symbol]);
  });
  return in_numbers(a) == statement;
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
  for (StringId symbol : symbols_of(whole)) divisions_.try_emplace({symbol, parts.size()}, division);
}

// None where it is a number: then all that is divided is divided alike.
std::vector<StringId> Numbers::symbols_of(ExprId a) {
  std::vector<StringId> symbols = facts_.pool().symbols(a);
  if (symbols.empty()) symbols.push_back(StringId());
  return symbols;
}

const Numbers::Division* Numbers::find_division(ExprId a, std::uint32_t parts) {
  for (StringId symbol : symbols_of(a))
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
