#include "ir/expr.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>

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

std::size_t hash(const Poly& poly) {
  std::size_t h = poly.terms.size();
  for (const Term& term : poly.terms) {
    h = mix_hash(h, static_cast<std::size_t>(term.coefficient.num));
    h = mix_hash(h, static_cast<std::size_t>(term.coefficient.den));
    for (AtomId atom : term.atoms) h = mix_hash(h, atom.index());
  }
  return h;
}

std::size_t hash(const Atom& atom) {
  std::size_t h = mix_hash(static_cast<std::size_t>(atom.kind), atom.name.index());
  for (PolyId operand : atom.operands) h = mix_hash(h, operand.index());
  return h;
}

// Digits compare as numbers: u4 before u10.
bool natural_less(std::string_view a, std::string_view b) {
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      std::size_t i0 = i, j0 = j;
      while (i < a.size() && digit(a[i])) ++i;
      while (j < b.size() && digit(b[j])) ++j;
      if (i - i0 != j - j0) return i - i0 < j - j0;
      if (int order = a.substr(i0, i - i0).compare(b.substr(j0, j - j0)); order != 0) return order < 0;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

bool has_letter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
}

// Real sizes are sums over at most a few thousand ranks, of a few factors each; powers of sums and applications
// to powers grow without bound.
constexpr std::size_t kMaxTerms = 1 << 14;
constexpr std::size_t kMaxFactors = 256;
constexpr std::uint32_t kMaxSize = 1 << 16;
constexpr std::uint32_t kMaxDepth = 64;
// Sizes of all that is built on the way to one expression. What is printed takes less: 256 factors are multiplied
// one by one, and 64 applications built around one another, of at most 65,536 atoms.
constexpr std::uint64_t kMaxParsed = 1 << 25;

void check_shape(std::uint64_t size, std::uint32_t depth) {
  if (size > kMaxSize)
    throw InputError(fmt::format("expression has more than {} symbols and numbers", kMaxSize));
  if (depth > kMaxDepth)
    throw InputError(fmt::format("expression has more than {} operations within one another", kMaxDepth));
}

struct Spelling {
  AtomKind kind;
  std::string_view name;
  std::string_view infix;  // how sympy writes it between operands, if it does
};

constexpr Spelling kSpellings[] = {
    {AtomKind::kFloorDiv, "FloorDiv", "//"},
    {AtomKind::kMod, "Mod", ""},
    {AtomKind::kMin, "Min", ""},
    {AtomKind::kMax, "Max", ""},
    {AtomKind::kEq, "Eq", ""},
    {AtomKind::kNe, "Ne", ""},
    {AtomKind::kLt, "Lt", "<"},
    {AtomKind::kLe, "Le", "<="},
    {AtomKind::kGt, "Gt", ">"},
    {AtomKind::kGe, "Ge", ">="},
    {AtomKind::kAnd, "And", "&"},
    {AtomKind::kOr, "Or", "|"},
    {AtomKind::kNot, "Not", "~"},
};

const Spelling* spelling_of(AtomKind kind) {
  for (const Spelling& s : kSpellings)
    if (s.kind == kind) return &s;
  return nullptr;
}

// Whether the operation can have so many operands.
bool takes_operands(AtomKind kind, std::size_t count) {
  switch (kind) {
    case AtomKind::kNot:
      return count == 1;
    case AtomKind::kMin:
    case AtomKind::kMax:
    case AtomKind::kAnd:
    case AtomKind::kOr:
      return count > 0;
    default:
      return count == 2;
  }
}

}  // namespace

Rational Rational::of(std::int64_t num, std::int64_t den) {
  EPWEAVE_CHECK(den != 0);
  return reduce(num, den);
}

Rational operator+(Rational a, Rational b) {
  return reduce(static_cast<Wide>(a.num) * b.den + static_cast<Wide>(b.num) * a.den,
                static_cast<Wide>(a.den) * b.den);
}

Rational operator*(Rational a, Rational b) {
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
  const std::size_t h = hash(poly);
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
  return intern(Poly{{Term{Rational{1, 1}, {atom}}}});
}

ExprId ExprPool::number(std::int64_t value) {
  ExprId& known = numbers_[value];
  if (!known) known = from_poly(poly_number(value));
  return known;
}

ExprId ExprPool::combine(Operation operation, ExprId a, ExprId b) {
  const std::uint64_t key = (static_cast<std::uint64_t>(a.index()) << 32) | b.index();
  ExprId& known = combined_[static_cast<std::size_t>(operation)][key];
  if (!known) known = from_poly(combine_polys(operation, poly(a), poly(b)));
  return known;
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
  auto [found, is_new] = expr_of_text_.try_emplace(text);
  if (is_new) found->second = exprs_.push_back({text, poly});
  EPWEAVE_DCHECK(exprs_[found->second].poly == poly);
  expr_of_poly_.at(poly) = found->second;
  return found->second;
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
  return from_atom(intern(Atom{AtomKind::kSymbol, name, {}}));
}

PolyId ExprPool::add(PolyId a, PolyId b) {
  const auto &x = polys_[a].terms, &y = polys_[b].terms;
  if (x.empty()) return b;
  if (y.empty()) return a;
  Poly sum;
  sum.terms.reserve(x.size() + y.size());
  for (std::size_t i = 0, j = 0; i < x.size() || j < y.size();) {
    if (j == y.size() || (i < x.size() && x[i].atoms < y[j].atoms)) {
      sum.terms.push_back(x[i++]);
    } else if (i == x.size() || y[j].atoms < x[i].atoms) {
      sum.terms.push_back(y[j++]);
    } else {
      Rational c = x[i].coefficient + y[j].coefficient;
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
  std::vector<Term> all;
  for (PolyId id : terms) all.insert(all.end(), polys_[id].terms.begin(), polys_[id].terms.end());
  return merge_terms(std::move(all));
}

ExprId ExprPool::sum(std::span<const ExprId> terms) {
  std::vector<PolyId> polys;
  polys.reserve(terms.size());
  for (ExprId term : terms) polys.push_back(poly(term));
  return from_poly(sum(polys));
}

PolyId ExprPool::sub(PolyId a, PolyId b) {
  return add(a, scale(b, Rational{-1, 1}));
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
  std::vector<Rational> numbers;
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
  if (symbols_.size() < polys_.size()) symbols_.resize(polys_.size());
  if (!symbols_[id.index()]) {
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
    symbols_[id.index()] = std::move(found);
  }
  return *symbols_[id.index()];
}

// --------------------------------------------------------------------------- text

namespace {

// Whether it is a single comparison of order, which is written with a sign and not as a function.
bool is_order(const ExprPool& pool, PolyId id) {
  const std::vector<Term>& terms = pool[id].terms;
  if (terms.size() != 1 || terms[0].atoms.size() != 1 || !(terms[0].coefficient == Rational{1, 1}))
    return false;
  const AtomKind kind = pool[terms[0].atoms[0]].kind;
  return kind == AtomKind::kLt || kind == AtomKind::kLe || kind == AtomKind::kGt || kind == AtomKind::kGe;
}

// The text of a term whose factors have these texts, with the sign that joins it to the terms before it.
std::string print_term(Rational coefficient, std::vector<std::string> factors, bool first) {
  const std::int64_t num = coefficient.num;
  const std::uint64_t magnitude =
      num < 0 ? 0 - static_cast<std::uint64_t>(num) : static_cast<std::uint64_t>(num);
  if (magnitude != 1 || factors.empty()) factors.insert(factors.begin(), fmt::format("{}", magnitude));
  // sympy puts a FloorDiv in a product into a second pair of parentheses.
  if (factors.size() > 1)
    for (std::string& factor : factors)
      if (factor.front() == '(') factor = fmt::format("({})", factor);
  std::string text = first ? (num < 0 ? "-" : "") : (num < 0 ? " - " : " + ");
  text += fmt::format("{}", fmt::join(factors, "*"));
  if (coefficient.den != 1) text += fmt::format("/{}", coefficient.den);
  return text;
}

}  // namespace

std::string ExprPool::print_atom(AtomId id) const {
  const Atom& atom = atoms_[id];
  if (atom.kind == AtomKind::kSymbol) return std::string(strings_[atom.name]);
  if (atom.kind == AtomKind::kInfinity) return "int_oo";
  std::vector<std::string> operands;
  for (PolyId operand : atom.operands) operands.push_back(print(operand));
  // Operands of these are kept by id, and their text must not depend on it. As sympy: numbers, then the
  // simpler ones.
  if (atom.kind == AtomKind::kMin || atom.kind == AtomKind::kMax || atom.kind == AtomKind::kAnd ||
      atom.kind == AtomKind::kOr)
    std::sort(operands.begin(), operands.end(), [](const std::string& x, const std::string& y) {
      const bool x_symbolic = has_letter(x), y_symbolic = has_letter(y);
      if (x_symbolic != y_symbolic) return y_symbolic;
      return x.size() != y.size() ? x.size() < y.size() : natural_less(x, y);
    });
  if (atom.kind == AtomKind::kFunction)
    return fmt::format("{}({})", strings_[atom.name], fmt::join(operands, ", "));
  if (atom.kind == AtomKind::kFloorDiv) {
    auto operand = [&](std::size_t i) {
      const PolyId p = atom.operands[i];
      const Poly& poly = polys_[p];
      bool simple = poly.terms.empty() ||
                    (poly.terms.size() == 1 && operands[i].find_first_of("+*/ ") == std::string::npos) ||
                    (poly.terms.size() == 1 && poly.terms[0].atoms.size() == 1 &&
                     poly.terms[0].coefficient == Rational{1, 1} && !is_order(*this, p));
      return simple ? operands[i] : fmt::format("({})", operands[i]);
    };
    return fmt::format("({}//{})", operand(0), operand(1));
  }
  return fmt::format("{}({})", spelling_of(atom.kind)->name, fmt::join(operands, ", "));
}

std::string ExprPool::print(PolyId id) const {
  // Ordered by text, not by id, so that the result does not depend on what was interned before.
  if (is_order(*this, id)) {
    // A comparison by itself, as sympy writes it: `0 <= u4`. They do not chain.
    const Atom& atom = atoms_[polys_[id].terms[0].atoms[0]];
    auto operand = [&](PolyId p) { return is_order(*this, p) ? fmt::format("({})", print(p)) : print(p); };
    return fmt::format("{} {} {}", operand(atom.operands[0]), spelling_of(atom.kind)->infix,
                       operand(atom.operands[1]));
  }
  struct Printed {
    Rational coefficient;
    std::vector<std::string> factors;
    std::string key;
  };
  std::vector<Printed> terms;
  std::optional<Rational> constant;
  for (const Term& term : polys_[id].terms) {
    if (term.atoms.empty()) {
      constant = term.coefficient;
      continue;
    }
    Printed& printed = terms.emplace_back();
    printed.coefficient = term.coefficient;
    for (AtomId atom : term.atoms) printed.factors.push_back(print_atom(atom));
    std::sort(printed.factors.begin(), printed.factors.end(), natural_less);
    printed.key = fmt::format("{}", fmt::join(printed.factors, "*"));
  }
  std::sort(terms.begin(), terms.end(),
            [](const Printed& a, const Printed& b) { return natural_less(a.key, b.key); });
  std::string text;
  for (Printed& term : terms) text += print_term(term.coefficient, std::move(term.factors), text.empty());
  if (constant) text += print_term(*constant, {}, text.empty());  // a constant last, as people write it
  return text.empty() ? "0" : text;
}

// Recursive descent over sympy's notation. Precedence, lowest first: | & ~ comparison +- */ // % unary- **.
class ExprParser {
 public:
  ExprParser(ExprPool& pool, std::string_view text) : pool_(pool), text_(text) {}

  PolyId parse_all() {
    PolyId result = parse_or();
    skip_spaces();
    if (at_ != text_.size()) fail("unexpected text");
    return result;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(
        fmt::format("bad expression: {} at column {}\n  {}\n  {:>{}}", what, at_ + 1, text_, "^", at_ + 1));
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(std::string_view token) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  // A limit on all that is built, so that hostile text cannot exhaust time or memory.
  PolyId built(PolyId poly) {
    parsed_ += pool_.shape(poly).size;
    if (parsed_ > kMaxParsed) fail("it takes too many operations on long sums or products");
    return poly;
  }
  // A limit on nesting, so that hostile text cannot exhaust the stack. What is printed of a polynomial has at most
  // three parentheses, two levels each, for every application within another: it parses again.
  struct Depth {
    explicit Depth(ExprParser& p) : parser(p) {
      if (++parser.depth_ > 8 * kMaxDepth) parser.fail("nested too deeply");
    }
    ~Depth() { --parser.depth_; }
    ExprParser& parser;
  };

  PolyId parse_or() {
    std::vector<PolyId> operands{parse_and()};
    while (accept("|")) operands.push_back(parse_and());
    return operands.size() == 1 ? operands[0] : pool_.apply(AtomKind::kOr, std::move(operands));
  }
  PolyId parse_and() {
    std::vector<PolyId> operands{parse_not()};
    while (accept("&")) operands.push_back(parse_not());
    return operands.size() == 1 ? operands[0] : pool_.apply(AtomKind::kAnd, std::move(operands));
  }
  PolyId parse_not() {
    Depth depth(*this);
    if (accept("~")) return pool_.apply(AtomKind::kNot, {parse_not()});
    return parse_comparison();
  }
  PolyId parse_comparison() {
    PolyId left = parse_sum();
    for (auto [token, kind] : {std::pair{"<=", AtomKind::kLe},
                               {">=", AtomKind::kGe},
                               {"==", AtomKind::kEq},
                               {"!=", AtomKind::kNe},
                               {"<", AtomKind::kLt},
                               {">", AtomKind::kGt}})
      if (accept(token)) return pool_.apply(kind, {left, parse_sum()});
    return left;
  }
  PolyId parse_sum() {
    std::vector<PolyId> terms{parse_product()};
    for (;;) {
      if (accept("+")) {
        terms.push_back(parse_product());
      } else if (accept("-")) {
        terms.push_back(built(pool_.scale(parse_product(), Rational{-1, 1})));
      } else {
        return built(pool_.sum(terms));
      }
    }
  }
  PolyId parse_product() {
    PolyId product = parse_unary();
    for (;;) {
      skip_spaces();
      if (text_.substr(at_).starts_with("**")) return product;
      if (accept("//")) {
        product = built(pool_.floordiv(product, parse_unary()));
      } else if (accept("*")) {
        product = built(pool_.mul(product, parse_unary()));
      } else if (accept("/")) {
        auto divisor = pool_.constant(parse_unary());
        if (!divisor || *divisor == 0)
          fail("'/' needs a number other than 0 behind it; write '//' for floor division");
        product = built(pool_.scale(product, Rational::of(1, *divisor)));
      } else if (accept("%")) {
        product = built(pool_.mod(product, parse_unary()));
      } else {
        return product;
      }
    }
  }
  PolyId parse_unary() {
    Depth depth(*this);
    if (accept("-")) return built(pool_.scale(parse_unary(), Rational{-1, 1}));
    if (accept("+")) return parse_unary();
    return parse_power();
  }
  PolyId parse_power() {
    PolyId base = parse_primary();
    if (!accept("**")) return base;
    auto exponent = pool_.constant(parse_unary());
    if (!exponent || *exponent < 0 || *exponent > 16) fail("only whole powers from 0 to 16");
    PolyId power = pool_.poly_number(1);
    for (std::int64_t i = 0; i < *exponent; ++i) power = built(pool_.mul(power, base));
    return power;
  }
  PolyId parse_primary() {
    skip_spaces();
    if (at_ == text_.size()) fail("expression ends early");
    if (accept("(")) {
      PolyId inner = parse_or();
      if (!accept(")")) fail("expected ')'");
      return inner;
    }
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c))) {
      std::int64_t value = 0;
      auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc()) fail("number does not fit in 64 bits");
      at_ = static_cast<std::size_t>(end - text_.data());
      return pool_.poly_number(parse_decimals(value));
    }
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') return parse_name();
    fail("expected a number, a symbol or '('");
  }
  // Behind the digits of a number: `.25` and `e-3`, as sympy writes the numbers of floating-point scalars. Exact.
  Rational parse_decimals(std::int64_t whole) {
    const auto is_digit = [&](std::size_t at) {
      return at < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at])) != 0;
    };
    Rational value{whole, 1};
    const auto scale = [&](Rational factor, std::int64_t times) {
      if (times > 18 && value.num != 0) fail("number does not fit in 64 bits");
      for (std::int64_t i = 0; i < times && value.num != 0; ++i) value = value * factor;
    };
    if (at_ < text_.size() && text_[at_] == '.') {
      Rational unit{1, 1};
      for (++at_; is_digit(at_); ++at_) {
        if (text_[at_] == '0' && !has_more_digits(at_)) continue;
        unit = unit * Rational{1, 10};
        value = value + Rational::of(text_[at_] - '0') * unit;
      }
    }
    if (at_ == text_.size() || text_[at_] != 'e') return value;
    const bool is_negative = at_ + 1 < text_.size() && text_[at_ + 1] == '-';
    const std::size_t first = at_ + (is_negative || text_.substr(at_ + 1).starts_with('+') ? 2 : 1);
    if (!is_digit(first)) fail("expected an exponent");
    std::int64_t exponent = 0;
    const auto [end, error] = std::from_chars(text_.data() + first, text_.data() + text_.size(), exponent);
    if (error != std::errc()) fail("number does not fit in 64 bits");
    at_ = static_cast<std::size_t>(end - text_.data());
    scale(is_negative ? Rational{1, 10} : Rational{10, 1}, exponent);
    return value;
  }
  // A digit other than 0 from here on.
  bool has_more_digits(std::size_t at) const {
    while (at < text_.size() && text_[at] == '0') ++at;
    return at < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at])) != 0;
  }
  PolyId parse_name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (accept("(")) {
      std::vector<PolyId> operands;
      if (!accept(")")) {
        do operands.push_back(parse_or());
        while (accept(","));
        if (!accept(")")) fail("expected ')'");
      }
      for (const Spelling& s : kSpellings)
        if (s.name == name) {
          if (!takes_operands(s.kind, operands.size()))
            fail(fmt::format("{} does not take {} operands", name, operands.size()));
          return pool_.apply(s.kind, std::move(operands));
        }
      if (name == "CleanDiv" && operands.size() == 2) return pool_.floordiv(operands[0], operands[1]);
      if (name == "PythonMod" && operands.size() == 2) return pool_.mod(operands[0], operands[1]);
      return pool_.apply(AtomKind::kFunction, std::move(operands), pool_.strings().intern(name));
    }
    if (name == "int_oo" || name == "oo") return pool_.apply(AtomKind::kInfinity, {});
    if (name == "True") return pool_.poly_number(1);
    if (name == "False") return pool_.poly_number(0);
    return pool_.poly_symbol(pool_.strings().intern(name));
  }

  ExprPool& pool_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t depth_ = 0;
  std::uint64_t parsed_ = 0;
};

ExprId ExprPool::parse(std::string_view text) {
  StringId text_id = strings_.intern(text);
  if (auto found = expr_of_text_.find(text_id); found != expr_of_text_.end()) return found->second;
  PolyId poly = ExprParser(*this, strings_[text_id]).parse_all();
  ExprId id = exprs_.push_back({text_id, poly});
  expr_of_text_.emplace(text_id, id);
  return id;
}

}  // namespace epweave
