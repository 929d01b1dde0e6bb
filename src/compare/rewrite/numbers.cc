#include "compare/rewrite/numbers.h"

#include <algorithm>

namespace epweave {

Numbers::Numbers(const Graph& a, const Graph& b) : facts_a_(a), facts_(b) {
  // What one extent says may be what another needs: 4 = s0, 9 = s0 + s1.
  std::vector<Extents> left = list_extents(a, b);
  while (std::erase_if(left, [&](const Extents& extents) { return learn(extents); }) > 0) {
  }
  learn_replacements(a);
  in_numbers_ = SideTable<ExprId, PolyId>();
}

std::vector<Numbers::Extents> Numbers::list_extents(const Graph& a, const Graph& b) const {
  SideTable<StringId, TypeId> types;
  for (NodeId id : b.step().order)
    if (b.step().nodes[id].kind == NodeKind::kPlaceholder)
      types.at(b.step().nodes[id].name) = b.step().nodes[id].type;
  std::vector<Extents> list;
  for (NodeId id : a.step().order) {
    const Node& node = a.step().nodes[id];
    if (node.kind != NodeKind::kPlaceholder || !types[node.name]) continue;
    const TensorType *x = tensor_of(*a.context, node.type), *y = tensor_of(*a.context, types[node.name]);
    if (x == nullptr || y == nullptr || x->sizes.size() != y->sizes.size()) continue;
    for (std::size_t i = 0; i < x->sizes.size(); ++i)
      if (x->sizes[i] != y->sizes[i]) list.push_back({x->sizes[i], y->sizes[i]});
  }
  return list;
}

std::optional<std::vector<std::int64_t>> Numbers::find_numbers(std::span<const ExprId> exprs) {
  std::vector<std::int64_t> result;
  for (ExprId expr : exprs) {
    const auto number = find_number(expr);
    if (!number) return {};
    result.push_back(*number);
  }
  return result;
}

bool Numbers::learn(const Extents& extents) {
  ExprPool& pool = facts_.pool();
  std::optional<std::int64_t> number = pool.constant(extents.a);
  if (!number) number = pool.constant(extents.b);
  if (!number) number = facts_.assumed_value(extents.b);
  if (!number) return false;
  bool learned = false;
  if (const auto known = solve(extents.a, pool.poly_number(*number), values_)) {
    values_.at(known->symbol) = known->value;
    known_numbers_.emplace_back(known->symbol, *pool.constant(known->value));
    learned = true;
  }
  if (const auto known = solve(extents.b, pool.poly_number(*number), numbers_b_)) {
    numbers_b_.at(known->symbol) = known->value;
    facts_.assume_number(known->symbol, *pool.constant(known->value));
    known_numbers_.emplace_back(known->symbol, *pool.constant(known->value));
    learned = true;
  }
  return learned;
}

// A symbol that was replaced by one that is known.
void Numbers::learn_replacements(const Graph& a) {
  for (const Symbol& symbol : a.symbols) {
    if (!symbol.replaced_by || values_[symbol.name]) continue;
    const PolyId value = substitute(facts_.pool().poly(*symbol.replaced_by), values_);
    if (facts_.pool().constant(value)) values_.at(symbol.name) = value;
  }
}

void Numbers::learn_sum(StringId symbol, ExprId whole, std::span<const ExprId> parts) {
  ExprPool& pool = facts_.pool();
  PolyId sum = pool.poly_number(0);
  for (ExprId part : parts) sum = pool.add(sum, pool.poly(part));
  const auto value = values_[symbol] ? std::nullopt : solve_for(symbol, in_numbers(whole), sum);
  if (!value) return;
  // What was learned before may name this symbol.
  for (StringId other : sums_)
    values_.at(other) = pool.substitute(*values_[other],
                                        [&](StringId name) { return name == symbol ? value : std::nullopt; });
  values_.at(symbol) = value;
  sums_.push_back(symbol);
  in_numbers_ = SideTable<ExprId, PolyId>();
  learn_division(whole, parts);
}

std::optional<Numbers::Solution> Numbers::solve(ExprId expr, PolyId value, const Values& known) const {
  ExprPool& pool = facts_.pool();
  const PolyId left = substitute(pool.poly(expr), known);
  const std::vector<StringId> symbols = pool.symbols(left);
  if (symbols.size() != 1) return std::nullopt;
  const auto solution = solve_for(symbols.front(), left, value);
  return solution && pool.constant(*solution) ? std::optional(Solution{symbols.front(), *solution})
                                              : std::nullopt;
}

std::optional<PolyId> Numbers::solve_for(StringId symbol, PolyId poly, PolyId value) const {
  ExprPool& pool = facts_.pool();
  const PolyId self = pool.poly_symbol(symbol);
  for (const Term& term : std::vector<Term>(pool[poly].terms)) {
    if (term.atoms.size() != 1 || pool.from_atom(term.atoms.front()) != self) continue;
    const PolyId rest = pool.sub(poly, pool.scale(self, term.coefficient));
    const std::vector<StringId>& others = pool.symbols(rest);
    if (std::ranges::find(others, symbol) != others.end()) return std::nullopt;
    return pool.scale(pool.sub(value, rest), Rational::of(term.coefficient.den, term.coefficient.num));
  }
  return std::nullopt;
}

PolyId Numbers::substitute(PolyId poly, const Values& known) const {
  return facts_.pool().substitute(poly, [&](StringId symbol) { return known[symbol]; });
}

PolyId Numbers::in_numbers(ExprId a) {
  PolyId& known = in_numbers_.at(a);
  return known ? known : known = substitute(facts_.pool().poly(a), values_);
}

PolyId Numbers::number_of_a(ExprId a) {
  const PolyId found = in_numbers(a);
  if (facts_.pool().constant(found)) return found;
  const PolyId said = facts_a_.normalize(a);
  return facts_.pool().constant(said) ? said : found;
}

bool Numbers::is_same_statement(ExprId a, ExprId b) {
  return a == b || in_numbers(a) == substitute(facts_.pool().poly(b), numbers_b_);
}

void Numbers::learn_division(ExprId whole, std::span<const ExprId> parts) {
  ExprPool& pool = facts_.pool();
  Division division{in_numbers(whole), {}};
  PolyId sum = pool.poly_number(0);
  for (ExprId part : parts) {
    division.parts.push_back(pool.poly(part));
    sum = pool.add(sum, division.parts.back());
  }
  // Nothing is divided in any way: it says of no number what its share is.
  const bool is_nothing = facts_.equal(division.whole, pool.poly_number(0));
  if (is_nothing || !facts_.equal(sum, division.whole)) return;
  for (StringId symbol : symbols_of(whole)) divisions_.try_emplace({symbol, parts.size()}, division);
}

std::optional<PolyId> Numbers::find_share(StringId symbol, Share share) const {
  const auto found = divisions_.find({symbol, share.parts});
  if (found == divisions_.end() || found->second.whole != facts_.pool().poly_symbol(symbol))
    return std::nullopt;
  return found->second.parts[share.part];
}

bool Numbers::is_sum(ExprId whole, std::span<const ExprId> parts) {
  ExprPool& pool = facts_.pool();
  PolyId sum = pool.poly_number(0);
  for (ExprId part : parts) sum = pool.add(sum, pool.poly(part));
  return facts_.equal(sum, in_numbers(whole));
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
  // Of symbols that are numbers in B: what has another one, as A's inputs have both, was divided.
  const auto found = divisions_.find({StringId(), parts});
  return found != divisions_.end() && facts_.pool().constant(in_numbers(a)) ? &found->second : nullptr;
}

bool Numbers::is_share(ExprId a, ExprId b, Share share) {
  ExprPool& pool = facts_.pool();
  const PolyId x = in_numbers(a), y = pool.poly(b);
  if (share.parts <= 1) return facts_.equal(x, y) || facts_.equal(number_of_a(a), y);
  const Division* division = find_division(a, share.parts);
  if (division == nullptr) return facts_.equal(x, pool.poly_number(0)) && facts_.equal(x, y);
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
