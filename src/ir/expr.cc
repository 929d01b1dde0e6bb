#include "ir/expr.h"

#include <fmt/format.h>

#include <algorithm>

namespace epweave {
namespace {

__extension__ typedef __int128 Wide;

std::int64_t narrow(Wide value) {
  if (value > INT64_MAX || value < INT64_MIN) throw InputError("expression overflows 64 bits");
  return static_cast<std::int64_t>(value);
}

Rational reduce(Wide num, Wide den) {
  if (den < 0) num = -num, den = -den;
  Wide a = num < 0 ? -num : num, b = den;
  while (b != 0) std::swap(a %= b, b);
  if (a > 1) num /= a, den /= a;
  return {narrow(num), narrow(den)};
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  const Wide x = a, y = b, q = x / y;
  return narrow((x % y != 0 && (x < 0) != (y < 0)) ? q - 1 : q);
}

// A term of a sum whose atoms lie in one of the summands.
struct TermView {
  Rational coefficient;
  const AtomList* atoms;
};

const AtomList& atoms_of(const Term& term) {
  return term.atoms;
}
const AtomList& atoms_of(const TermView& term) {
  return *term.atoms;
}

template <class Terms>
std::size_t hash_terms(const Terms& terms) {
  std::size_t h = terms.size();
  for (const auto& term : terms) {
    h = mix_hash(h, static_cast<std::size_t>(term.coefficient.num));
    h = mix_hash(h, static_cast<std::size_t>(term.coefficient.den));
    for (AtomId atom : atoms_of(term)) h = mix_hash(h, atom.index());
  }
  return h;
}

// Brings terms in any order into that of a polynomial, those with the same atoms added.
void merge(std::vector<TermView>& terms) {
  const auto goes_before = [](const TermView& p, const TermView& q) { return *p.atoms < *q.atoms; };
  if (!std::ranges::is_sorted(terms, goes_before)) std::ranges::stable_sort(terms, goes_before);
  std::size_t count = 0;
  for (const TermView& term : terms) {
    if (count > 0 && *terms[count - 1].atoms == *term.atoms) {
      terms[count - 1].coefficient = terms[count - 1].coefficient + term.coefficient;
    } else {
      terms[count++] = term;
    }
  }
  terms.resize(count);
  std::erase_if(terms, [](const TermView& term) { return term.coefficient.num == 0; });
}

std::size_t hash(const Atom& atom) {
  std::size_t h = mix_hash(static_cast<std::size_t>(atom.kind), atom.name.index());
  for (PolyId operand : atom.operands) h = mix_hash(h, operand.index());
  return h;
}

// Real sizes are sums over at most a few thousand ranks, of a few factors each; powers of sums and
// applications to powers grow without bound.
constexpr std::size_t kMaxTerms = 1 << 14;
constexpr std::size_t kMaxFactors = 256;
constexpr std::uint32_t kMaxSize = 1 << 16;
constexpr std::uint32_t kMaxDepth = 64;

void check_shape(std::uint64_t size, std::uint32_t depth) {
  if (size > kMaxSize)
    throw InputError(fmt::format("expression has more than {} symbols and numbers", kMaxSize));
  if (depth > kMaxDepth)
    throw InputError(fmt::format("expression has more than {} operations within one another", kMaxDepth));
}

// Max(1, Max(0, x)) is Max(1, x): what is inside counts as an operand, and of numbers one is left.
std::vector<PolyId> flatten_extremes(ExprPool& pool, AtomKind kind, std::span<const PolyId> operands) {
  std::vector<PolyId> numbers, others;
  const auto add = [&](PolyId operand) { (pool.constant(operand) ? numbers : others).push_back(operand); };
  for (PolyId operand : operands) {
    const std::vector<Term>& terms = pool[operand].terms;
    const bool is_atom =
        terms.size() == 1 && terms[0].atoms.size() == 1 && terms[0].coefficient == Rational{1, 1};
    if (is_atom && pool[terms[0].atoms[0]].kind == kind)
      std::ranges::for_each(pool[terms[0].atoms[0]].operands, add);
    else
      add(operand);
  }
  if (numbers.size() > 1 && !others.empty()) numbers = {pool.apply(kind, numbers)};
  others.insert(others.end(), numbers.begin(), numbers.end());
  return others;
}

}  // namespace

Rational Rational::of(std::int64_t num, std::int64_t den) {
  EPWEAVE_CHECK(den != 0);
  return reduce(num, den);
}

Rational operator+(Rational a, Rational b) {
  if (a.den == 1 && b.den == 1) return {narrow(static_cast<Wide>(a.num) + b.num), 1};
  return reduce(static_cast<Wide>(a.num) * b.den + static_cast<Wide>(b.num) * a.den,
                static_cast<Wide>(a.den) * b.den);
}

Rational operator*(Rational a, Rational b) {
  if (a.den == 1 && b.den == 1) return {narrow(static_cast<Wide>(a.num) * b.num), 1};
  return reduce(static_cast<Wide>(a.num) * b.num, static_cast<Wide>(a.den) * b.den);
}

ExprPool::ExprPool(StringTable& strings) : strings_(strings) {}

// --------------------------------------------------------------------------- interning

PolyShape ExprPool::measure(const Poly& poly) const {
  std::uint64_t size = 0;
  std::uint32_t depth = 0;
  for (const Term& term : poly.terms) {
    ++size;
    for (AtomId atom : term.atoms) {
      size += atom_shapes_[atom].size;
      depth = std::max(depth, atom_shapes_[atom].depth);
    }
  }
  check_shape(size, depth);
  return {static_cast<std::uint32_t>(size), depth};
}

PolyShape ExprPool::measure(const Atom& atom) const {
  std::uint64_t size = 1;
  std::uint32_t depth = 0;
  for (PolyId operand : atom.operands) {
    size += poly_shapes_[operand].size;
    depth = std::max(depth, poly_shapes_[operand].depth + 1);
  }
  check_shape(size, depth);
  return {static_cast<std::uint32_t>(size), depth};
}

PolyId ExprPool::intern(Poly poly) {
  const std::size_t h = hash_terms(poly.terms);
  const std::uint32_t known = poly_ids_.find(h, [&](std::uint32_t id) { return polys_[PolyId(id)] == poly; });
  if (known != HashIndex::kNone) return PolyId(known);
  poly_shapes_.push_back(measure(poly));
  PolyId id = polys_.push_back(std::move(poly));
  poly_ids_.insert(h, id.index());
  return id;
}

AtomId ExprPool::intern(Atom atom) {
  const std::size_t h = hash(atom);
  const std::uint32_t known = atom_ids_.find(h, [&](std::uint32_t id) { return atoms_[AtomId(id)] == atom; });
  if (known != HashIndex::kNone) return AtomId(known);
  atom_shapes_.push_back(measure(atom));
  AtomId id = atoms_.push_back(std::move(atom));
  atom_ids_.insert(h, id.index());
  return id;
}

PolyId ExprPool::from_atom(AtomId atom) {
  PolyId& known = poly_of_atom_.at(atom);
  if (!known) known = intern(Poly{{Term{Rational{1, 1}, {atom}}}});
  return known;
}

ExprId ExprPool::number(std::int64_t value) {
  ExprId& known = numbers_[value];
  if (!known) known = from_poly(poly_number(value));
  return known;
}

ExprId ExprPool::combine(Operation operation, ExprId a, ExprId b) {
  combinations_.push(static_cast<std::uint64_t>(operation));
  combinations_.push((static_cast<std::uint64_t>(a.index()) << 32) | b.index());
  const auto [number, is_new] = combinations_.intern();
  if (is_new) combined_.emplace_back();
  if (!combined_[number]) combined_[number] = from_poly(combine_polys(operation, poly(a), poly(b)));
  return combined_[number];
}

PolyId ExprPool::combine_polys(Operation operation, PolyId a, PolyId b) {
  switch (operation) {
    case Operation::kAdd:
      return add(a, b);
    case Operation::kSub:
      return sub(a, b);
    case Operation::kMul:
      return mul(a, b);
    case Operation::kFloorDiv:
      return floordiv(a, b);
    case Operation::kMod:
      return mod(a, b);
    case Operation::kMin:
      return apply(AtomKind::kMin, {a, b});
    case Operation::kMax:
      return apply(AtomKind::kMax, {a, b});
  }
  return a;
}

ExprId ExprPool::from_poly(PolyId poly) {
  if (ExprId known = expr_of_poly_[poly]) return known;
  const StringId text = strings_.intern(print(poly));
  ExprId& id = expr_of_text_.at(text);
  if (!id) id = exprs_.push_back({text, poly});
  EPWEAVE_DCHECK(exprs_[id].poly == poly);
  expr_of_poly_.at(poly) = id;
  return id;
}

// --------------------------------------------------------------------------- arithmetic

std::optional<std::int64_t> ExprPool::constant(PolyId id) const {
  const Poly& poly = polys_[id];
  if (poly.terms.empty()) return 0;
  const Term& term = poly.terms.front();
  if (poly.terms.size() == 1 && term.atoms.empty() && term.coefficient.is_integer())
    return term.coefficient.num;
  return std::nullopt;
}

PolyId ExprPool::poly_number(Rational value) {
  if (value.num == 0) return intern(Poly{});
  return intern(Poly{{Term{value, {}}}});
}

PolyId ExprPool::poly_symbol(StringId name) {
  PolyId& known = poly_of_symbol_.at(name);
  if (!known) known = from_atom(intern(Atom{AtomKind::kSymbol, name, {}}));
  return known;
}

PolyId ExprPool::add(PolyId a, PolyId b) {
  return polys_[a].terms.empty() ? b : add_multiple(a, b, Rational{1, 1});
}

// a + factor * b
PolyId ExprPool::add_multiple(PolyId a, PolyId b, Rational factor) {
  const auto &x = polys_[a].terms, &y = polys_[b].terms;
  if (y.empty()) return a;
  Poly sum;
  sum.terms.reserve(x.size() + y.size());
  for (std::size_t i = 0, j = 0; i < x.size() || j < y.size();) {
    if (j == y.size() || (i < x.size() && x[i].atoms < y[j].atoms)) {
      sum.terms.push_back(x[i++]);
    } else if (i == x.size() || y[j].atoms < x[i].atoms) {
      sum.terms.push_back({y[j].coefficient * factor, y[j].atoms});
      ++j;
    } else {
      Rational c = x[i].coefficient + y[j].coefficient * factor;
      if (c.num != 0) sum.terms.push_back({c, x[i].atoms});
      ++i, ++j;
    }
  }
  return intern(std::move(sum));
}

// The sum of terms in any order, those with the same atoms added.
PolyId ExprPool::merge_terms(std::vector<Term> terms) {
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term& p, const Term& q) { return p.atoms < q.atoms; });
  Poly result;
  for (Term& term : terms) {
    if (!result.terms.empty() && result.terms.back().atoms == term.atoms) {
      result.terms.back().coefficient = result.terms.back().coefficient + term.coefficient;
    } else {
      result.terms.push_back(std::move(term));
    }
  }
  std::erase_if(result.terms, [](const Term& term) { return term.coefficient.num == 0; });
  return intern(std::move(result));
}

PolyId ExprPool::sum(std::span<const PolyId> terms) {
  if (terms.size() <= 2) {
    if (terms.empty()) return poly_number(0);
    return terms.size() == 1 ? terms[0] : add(terms[0], terms[1]);
  }
  std::vector<TermView> all;
  for (PolyId id : terms)
    for (const Term& term : polys_[id].terms) all.push_back({term.coefficient, &term.atoms});
  merge(all);
  // Most sums are known: one is made only where it is not.
  const std::uint32_t known = poly_ids_.find(hash_terms(all), [&](std::uint32_t id) {
    return std::ranges::equal(polys_[PolyId(id)].terms, all, [](const Term& a, const TermView& b) {
      return a.coefficient == b.coefficient && a.atoms == *b.atoms;
    });
  });
  if (known != HashIndex::kNone) return PolyId(known);
  Poly sum;
  sum.terms.reserve(all.size());
  for (const TermView& term : all) sum.terms.push_back({term.coefficient, *term.atoms});
  return intern(std::move(sum));
}

ExprId ExprPool::sum(std::span<const ExprId> terms) {
  std::vector<PolyId> polys;
  polys.reserve(terms.size());
  for (ExprId term : terms) polys.push_back(poly(term));
  return from_poly(sum(polys));
}

PolyId ExprPool::sub(PolyId a, PolyId b) {
  return a == b ? poly_number(0) : add_multiple(a, b, Rational{-1, 1});
}

PolyId ExprPool::scale(PolyId a, Rational factor) {
  if (factor == Rational{1, 1}) return a;
  if (factor.num == 0) return poly_number(0);
  Poly scaled = polys_[a];
  for (Term& term : scaled.terms) term.coefficient = term.coefficient * factor;
  return intern(std::move(scaled));
}

PolyId ExprPool::mul(PolyId a, PolyId b) {
  if (polys_[a].terms.empty() || polys_[b].terms.empty()) return poly_number(0);
  if (polys_[a].terms.size() == 1 && polys_[a].terms[0].atoms.empty())
    return scale(b, polys_[a].terms[0].coefficient);
  if (polys_[b].terms.size() == 1 && polys_[b].terms[0].atoms.empty())
    return scale(a, polys_[b].terms[0].coefficient);
  check_product(a, b);
  const std::vector<Term>&left = polys_[a].terms, &right = polys_[b].terms;
  std::vector<Term> products;
  products.reserve(left.size() * right.size());
  for (const Term& x : left) {
    for (const Term& y : right) {
      Term& product = products.emplace_back();
      product.coefficient = x.coefficient * y.coefficient;
      product.atoms.reserve(x.atoms.size() + y.atoms.size());
      std::merge(x.atoms.begin(), x.atoms.end(), y.atoms.begin(), y.atoms.end(),
                 std::back_inserter(product.atoms));
    }
  }
  return merge_terms(std::move(products));
}

// Before it is multiplied out: the product may be too large to hold.
void ExprPool::check_product(PolyId a, PolyId b) const {
  const std::vector<Term>&left = polys_[a].terms, &right = polys_[b].terms;
  if (left.size() * right.size() > kMaxTerms)
    throw InputError(fmt::format("expression has more than {} terms", kMaxTerms));
  auto factors = [](const std::vector<Term>& terms) {
    std::size_t most = 0;
    for (const Term& term : terms) most = std::max(most, term.atoms.size());
    return most;
  };
  if (factors(left) + factors(right) > kMaxFactors)
    throw InputError(fmt::format("expression multiplies more than {} factors", kMaxFactors));
  check_shape(
      std::uint64_t{poly_shapes_[a].size} * right.size() + std::uint64_t{poly_shapes_[b].size} * left.size(),
      0);
}

std::optional<PolyId> ExprPool::divide_exactly(PolyId a, PolyId b) {
  if (a == b && !polys_[a].terms.empty()) return poly_number(1);
  if (polys_[b].terms.size() != 1) {
    // A multiple of a sum: only the common factor is tried.
    const Poly &num = polys_[a], &den = polys_[b];
    if (den.terms.empty() || num.terms.size() != den.terms.size()) return std::nullopt;
    Rational q =
        num.terms[0].coefficient * Rational::of(den.terms[0].coefficient.den, den.terms[0].coefficient.num);
    if (scale(b, q) == a) return poly_number(q);
    return std::nullopt;
  }
  const Term divisor = polys_[b].terms[0];
  Poly quotient;
  for (const Term& term : polys_[a].terms) {
    Term q{term.coefficient * Rational::of(divisor.coefficient.den, divisor.coefficient.num), {}};
    if (!std::includes(term.atoms.begin(), term.atoms.end(), divisor.atoms.begin(), divisor.atoms.end()))
      return std::nullopt;
    std::set_difference(term.atoms.begin(), term.atoms.end(), divisor.atoms.begin(), divisor.atoms.end(),
                        std::back_inserter(q.atoms));
    quotient.terms.push_back(std::move(q));
  }
  std::sort(quotient.terms.begin(), quotient.terms.end(),
            [](const Term& p, const Term& q) { return p.atoms < q.atoms; });
  return intern(std::move(quotient));
}

std::optional<Rational> ExprPool::apply_numbers(AtomKind kind, std::span<const Rational> v) {
  auto compare = [&] {
    return static_cast<Wide>(v[0].num) * v[1].den - static_cast<Wide>(v[1].num) * v[0].den;
  };
  auto boolean = [](bool b) { return Rational{b ? 1 : 0, 1}; };
  const bool binary = v.size() == 2;
  switch (kind) {
    case AtomKind::kFloorDiv:
    case AtomKind::kMod: {
      if (!binary || !v[0].is_integer() || !v[1].is_integer() || v[1].num == 0) return std::nullopt;
      std::int64_t q = floor_div(v[0].num, v[1].num);
      if (kind == AtomKind::kFloorDiv) return Rational{q, 1};
      return Rational{narrow(static_cast<Wide>(v[0].num) - static_cast<Wide>(q) * v[1].num), 1};
    }
    case AtomKind::kMin:
    case AtomKind::kMax: {
      if (v.empty()) return std::nullopt;
      Rational best = v[0];
      for (Rational r : v.subspan(1)) {
        bool less = static_cast<Wide>(r.num) * best.den < static_cast<Wide>(best.num) * r.den;
        if (less == (kind == AtomKind::kMin)) best = r;
      }
      return best;
    }
    case AtomKind::kEq:
      return binary ? std::optional(boolean(compare() == 0)) : std::nullopt;
    case AtomKind::kNe:
      return binary ? std::optional(boolean(compare() != 0)) : std::nullopt;
    case AtomKind::kLt:
      return binary ? std::optional(boolean(compare() < 0)) : std::nullopt;
    case AtomKind::kLe:
      return binary ? std::optional(boolean(compare() <= 0)) : std::nullopt;
    case AtomKind::kGt:
      return binary ? std::optional(boolean(compare() > 0)) : std::nullopt;
    case AtomKind::kGe:
      return binary ? std::optional(boolean(compare() >= 0)) : std::nullopt;
    case AtomKind::kAnd:
      return boolean(std::all_of(v.begin(), v.end(), [](Rational r) { return r.num != 0; }));
    case AtomKind::kOr:
      return boolean(std::any_of(v.begin(), v.end(), [](Rational r) { return r.num != 0; }));
    case AtomKind::kNot:
      return v.size() == 1 ? std::optional(boolean(v[0].num == 0)) : std::nullopt;
    case AtomKind::kSymbol:
    case AtomKind::kInfinity:
    case AtomKind::kFunction:
      return std::nullopt;
  }
  return std::nullopt;
}

PolyId ExprPool::floordiv(PolyId a, PolyId b) {
  return apply(AtomKind::kFloorDiv, {a, b});
}
PolyId ExprPool::mod(PolyId a, PolyId b) {
  return apply(AtomKind::kMod, {a, b});
}

PolyId ExprPool::apply(AtomKind kind, std::vector<PolyId> operands, StringId name) {
  if (kind == AtomKind::kMin || kind == AtomKind::kMax) operands = flatten_extremes(*this, kind, operands);
  std::vector<Rational> numbers;
  numbers.reserve(operands.size());
  for (PolyId operand : operands) {
    const Poly& poly = polys_[operand];
    if (poly.terms.empty()) {
      numbers.push_back(Rational{0, 1});
    } else if (poly.terms.size() == 1 && poly.terms[0].atoms.empty()) {
      numbers.push_back(poly.terms[0].coefficient);
    }
  }
  if (numbers.size() == operands.size() && !operands.empty())
    if (auto value = apply_numbers(kind, numbers)) return poly_number(*value);

  if (operands.size() == 2 && (kind == AtomKind::kFloorDiv || kind == AtomKind::kMod)) {
    // Exact where every coefficient of the quotient is an integer.
    if (auto quotient = divide_exactly(operands[0], operands[1])) {
      const auto& terms = polys_[*quotient].terms;
      if (std::all_of(terms.begin(), terms.end(), [](const Term& t) { return t.coefficient.is_integer(); }))
        return kind == AtomKind::kFloorDiv ? *quotient : poly_number(0);
    }
  }
  if (kind == AtomKind::kMin || kind == AtomKind::kMax || kind == AtomKind::kAnd || kind == AtomKind::kOr) {
    std::sort(operands.begin(), operands.end());
    operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
    if (operands.size() == 1) return operands[0];
  }
  return from_atom(intern(Atom{kind, name, std::move(operands)}));
}

const std::vector<StringId>& ExprPool::symbols(PolyId id) {
  if (const std::vector<StringId>* known = symbols_[id]) return *known;
  std::vector<StringId> found;
  for (const Term& term : polys_[id].terms) {
    for (AtomId atom_id : term.atoms) {
      const Atom& atom = atoms_[atom_id];
      if (atom.kind == AtomKind::kSymbol) found.push_back(atom.name);
      for (PolyId operand : atom.operands) {
        const std::vector<StringId>& inner = symbols(operand);
        found.insert(found.end(), inner.begin(), inner.end());
      }
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  symbol_lists_.push_back(std::move(found));
  symbols_.at(id) = &symbol_lists_.back();
  return symbol_lists_.back();
}

}  // namespace epweave
