#include "ir/facts.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>

namespace epweave {
namespace {

// Up to a coefficient.
bool is_single_atom(const Poly& poly) {
  return poly.terms.size() == 1 && poly.terms[0].atoms.size() == 1;
}

// The numbers that the chunker that wrote the graph took symbols to be.
template <class Visit>  // (StringId, std::int64_t)
void for_each_hint(const Graph& graph, const Visit& visit) {
  for (const Body& body : graph.bodies) {
    if (body.name) continue;  // they lie on the step's placeholders
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      if (node.kind != NodeKind::kPlaceholder) break;
      if (!node.extra) continue;
      for (auto [symbol, hint] : node.extra->chunk_hints) visit(symbol, hint);
    }
  }
}

// All that facts are learned from, in words: equal where two graphs say the same of their symbols.
std::vector<std::uint64_t> what_is_said(const Graph& graph) {
  std::vector<std::uint64_t> words;
  words.reserve(9 * graph.symbols.size() + 1);
  words.push_back(graph.symbols.size());
  const auto push = [&](std::initializer_list<std::uint64_t> some) { words.insert(words.end(), some); };
  const auto push_all = [&](const std::vector<ExprId>& exprs) {
    for (ExprId expr : exprs) words.push_back(expr.index());
  };
  const auto number = [](std::optional<std::int64_t> value) {
    return static_cast<std::uint64_t>(value.value_or(0));
  };
  for (const Symbol& symbol : graph.symbols) {
    push({symbol.name.index(), symbol.lower.value_or(ExprId()).index(),
          symbol.replaced_by.value_or(ExprId()).index(), symbol.hint.has_value(), number(symbol.hint),
          symbol.asserts ? symbol.asserts->size() + 1 : 0, symbol.assumptions.size()});
    if (symbol.asserts) push_all(*symbol.asserts);
    push_all(symbol.assumptions);
  }
  for_each_hint(graph, [&](StringId symbol, std::int64_t hint) { push({symbol.index(), number(hint)}); });
  return words;
}

}  // namespace

Facts::Facts(const Graph& graph) : pool_(graph.context->exprs) {
  std::vector<std::uint64_t> from = what_is_said(graph);
  std::shared_ptr<LearnedFacts>& last = graph.context->facts;
  if (last && last->from == from) {
    learned_ = last;
    return;
  }
  last.reset();
  learned_ = std::make_shared<LearnedFacts>();
  learned_->from = std::move(from);
  for_each_hint(graph, [&](StringId symbol, std::int64_t hint) {
    Known& known = learned_->known.at(symbol);
    known.value = known.hint = hint;
  });
  for (const Symbol& symbol : graph.symbols) learn(symbol);
  learned_->is_complete = true;
  // A symbol that is written as a sum of others bounds these: u5 = u2 + u3 - u4 is at least 0.
  for (const Symbol& symbol : graph.symbols)
    if (const Known* known = learned_->known.find(symbol.name);
        known != nullptr && known->equals && known->lower)
      learned_->bounds.push_back(pool_.sub(pool_.poly_symbol(symbol.name), pool_.poly_number(*known->lower)));
  index_bounds();
  last = learned_;
}

LearnedFacts& Facts::own() {
  if (learned_.use_count() > 1) learned_ = std::make_shared<LearnedFacts>(*learned_);
  return *learned_;
}

void Facts::learn(const Symbol& symbol) {
  // Asked for each time: learn_equality may move it.
  const auto known = [&]() -> Known& { return learned_->known.at(symbol.name); };
  if (symbol.hint && !known().hint) known().hint = symbol.hint;
  if (symbol.lower) known().lower = pool_.constant(*symbol.lower);

  if (symbol.replaced_by)
    learn_equality(symbol.name, pool_.sub(pool_.poly_symbol(symbol.name), pool_.poly(*symbol.replaced_by)));
  const auto learn_statement = [&](ExprId statement) {
    if (!is_single_atom(pool_[pool_.poly(statement)])) return;
    const PolyId self = pool_.poly_symbol(symbol.name);  // before the references: the pool may grow
    const Atom& fact = pool_[pool_[pool_.poly(statement)].terms[0].atoms[0]];
    if (fact.kind == AtomKind::kLe && pool_.constant(fact.operands[0]) && fact.operands[1] == self) {
      const std::int64_t bound = *pool_.constant(fact.operands[0]);
      known().lower = std::max(known().lower.value_or(bound), bound);
    }
    if (fact.kind != AtomKind::kEq) return learn_order(fact);
    // Eq(Mod(s, n), 0)
    const Poly& left = pool_[fact.operands[0]];
    if (pool_.is_constant(fact.operands[1], 0) && is_single_atom(left)) {
      const Atom& mod = pool_[left.terms[0].atoms[0]];
      if (mod.kind == AtomKind::kMod && mod.operands[0] == self) {
        if (auto divisor = pool_.constant(mod.operands[1]); divisor && *divisor > 0)
          known().divisor = std::lcm(known().divisor, *divisor);
        return;
      }
    }
    // An assumed number stays a symbol here: it is used for divisibility only.
    if (fact.operands[0] == self && pool_.constant(fact.operands[1])) {
      known().value = pool_.constant(fact.operands[1]);
      return;
    }
    learn_equality(symbol.name, pool_.sub(fact.operands[0], fact.operands[1]));
  };
  if (symbol.asserts) std::ranges::for_each(*symbol.asserts, learn_statement);
  std::ranges::for_each(symbol.assumptions, learn_statement);
}

// u0, u0//3, (2*u0)//3.
bool Facts::is_symbol_or_part(AtomId id) const {
  const Atom& atom = pool_[id];
  if (atom.kind == AtomKind::kSymbol) return true;
  if (atom.kind != AtomKind::kFloorDiv || !pool_.constant(atom.operands[1])) return false;
  const std::vector<Term>& terms = pool_[atom.operands[0]].terms;
  return std::ranges::all_of(terms, [&](const Term& term) {
    return std::ranges::all_of(term.atoms, [&](AtomId of) { return pool_[of].kind == AtomKind::kSymbol; });
  });
}

bool Facts::has_symbols_and_parts_only(PolyId poly) const {
  return std::ranges::all_of(pool_[poly].terms, [&](const Term& term) {
    return std::ranges::all_of(term.atoms, [&](AtomId atom) { return is_symbol_or_part(atom); });
  });
}

// The symbol that a term subtracts by itself; or none.
StringId Facts::subtracted_symbol(const Term& term) const {
  if (term.coefficient.num >= 0 || term.atoms.size() != 1) return {};
  const Atom& atom = pool_[term.atoms[0]];
  return atom.kind == AtomKind::kSymbol ? atom.name : StringId();
}

// difference = 0. Eliminates `symbol` where it occurs once, as itself, with coefficient 1 or -1.
void Facts::learn_equality(StringId symbol, PolyId difference) {
  Known& known = learned_->known.at(symbol);
  if (known.equals) return;
  difference = normalize(difference);
  const Poly poly = pool_[difference];
  const PolyId self = pool_.poly_symbol(symbol);
  for (const Term& term : poly.terms) {
    if (term.atoms.size() != 1 || pool_[term.atoms[0]].kind != AtomKind::kSymbol ||
        pool_[term.atoms[0]].name != symbol || (term.coefficient.num != 1 && term.coefficient.num != -1) ||
        term.coefficient.den != 1)
      continue;
    const PolyId rest = pool_.sub(difference, pool_.scale(self, term.coefficient));
    const auto& symbols = pool_.symbols(rest);
    if (std::find(symbols.begin(), symbols.end(), symbol) != symbols.end()) return;
    // Nothing but symbols and parts of them: normal forms stay what rules can divide and compare.
    if (!has_symbols_and_parts_only(rest)) return;
    known.equals = pool_.scale(rest, Rational{-term.coefficient.num, 1});
    return;
  }
}

// a <= b where each has symbols.
void Facts::learn_order(const Atom& fact) {
  const bool is_upwards = fact.kind == AtomKind::kLe || fact.kind == AtomKind::kLt;
  const bool is_strict = fact.kind == AtomKind::kLt || fact.kind == AtomKind::kGt;
  if (!is_upwards && fact.kind != AtomKind::kGe && fact.kind != AtomKind::kGt) return;
  const PolyId less = fact.operands[is_upwards ? 0 : 1], more = fact.operands[is_upwards ? 1 : 0];
  if (pool_.symbols(less).empty() || pool_.symbols(more).empty()) return;
  const PolyId difference = pool_.sub(pool_.sub(more, less), pool_.poly_number(is_strict ? 1 : 0));
  if (has_symbols_and_parts_only(difference)) learned_->bounds.push_back(difference);
}

void Facts::index_bounds() {
  learned_->bounds_of = {};
  for (PolyId bound : learned_->bounds) {
    const PolyId normal = normalize(bound);
    for (const Term& term : pool_[normal].terms)
      if (const StringId symbol = subtracted_symbol(term)) learned_->bounds_of.at(symbol).push_back(normal);
  }
}

void Facts::assume_number(StringId symbol, std::int64_t number) {
  LearnedFacts& learned = own();
  Known& known = learned.known.at(symbol);
  known.equals = pool_.poly_number(number);
  known.value = known.hint = known.lower = number;
  learned.normal = SideTable<PolyId, PolyId>();
  learned.normal_stride = SideTable<PolyId, PolyId>();
  index_bounds();
}

void Facts::take_hints(const Facts& other) {
  LearnedFacts& learned = own();
  for (const auto& [symbol, known] : other.learned_->known) {
    std::optional<std::int64_t>& hint = learned.known.at(symbol).hint;
    if (!hint) hint = known.hint;
  }
}

bool Facts::divides(std::int64_t divisor, StringId symbol) const {
  if (divisor == 1) return true;
  const Known* known = learned_->known.find(symbol);
  if (known == nullptr) return false;
  return known->divisor % divisor == 0 || (known->value && *known->value % divisor == 0);
}

std::optional<std::int64_t> Facts::assumed_value(StringId symbol) const {
  const Known* known = learned_->known.find(symbol);
  return known == nullptr ? std::nullopt : known->value;
}

std::optional<std::int64_t> Facts::hint(StringId symbol) const {
  const Known* known = learned_->known.find(symbol);
  return known == nullptr ? std::nullopt : known->hint;
}

std::optional<std::int64_t> Facts::hint(PolyId poly) const {
  auto value = pool_.evaluate(poly, [&](StringId symbol) { return hint(symbol); });
  return value && value->is_integer() ? std::optional(value->num) : std::nullopt;
}

PolyId Facts::normalize(PolyId poly) {
  if (PolyId known = learned_->normal[poly]) return known;
  PolyId result = poly;
  if (!pool_.symbols(poly).empty()) {
    std::vector<PolyId> factors;  // of all terms
    bool changed = false;
    // By index: the pool grows.
    const std::size_t count = pool_[poly].terms.size();
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t j = 0; j < pool_[poly].terms[i].atoms.size(); ++j) {
        const AtomId atom = pool_[poly].terms[i].atoms[j];
        factors.push_back(normalize_atom(atom));
        changed |= factors.back() != pool_.from_atom(atom);
      }
    if (changed) {
      std::vector<PolyId> products;  // added at once: a sum over ranks has a term for each
      products.reserve(count);
      auto factor = factors.begin();
      for (std::size_t i = 0; i < count; ++i) {
        PolyId product = pool_.poly_number(pool_[poly].terms[i].coefficient);
        for (std::size_t j = pool_[poly].terms[i].atoms.size(); j > 0; --j)
          product = pool_.mul(product, *factor++);
        products.push_back(product);
      }
      result = pool_.sum(products);
    }
  }
  if (learned_->is_complete) {
    learned_->normal.at(poly) = result;
    learned_->normal.at(result) = result;
  }
  return result;
}

bool Facts::differ(ExprId a, ExprId b) {
  if (a == b) return false;
  const PolyId left = normalize(a), right = normalize(b);
  if (left == right) return false;
  const PolyId difference = pool_.sub(left, right);
  if (auto number = pool_.constant(difference)) return *number != 0;
  const PolyId one = pool_.poly_number(1);
  return is_nonnegative(pool_.sub(difference, one)) || is_nonpositive(pool_.add(difference, one));
}

bool Facts::at_least(ExprId a, ExprId b) {
  return equal(a, b) || at_least(normalize(a), normalize(b));
}

// Min(x, y) >= b where both x and y are; a >= Min(x, y) where a >= one of them; Max the other way
// around.
bool Facts::at_least(PolyId a, PolyId b) {
  if (is_nonnegative(pool_.sub(a, b))) return true;
  const std::vector<PolyId> least_a = operands_of(a, AtomKind::kMin),
                            least_b = operands_of(b, AtomKind::kMin);
  const std::vector<PolyId> most_a = operands_of(a, AtomKind::kMax), most_b = operands_of(b, AtomKind::kMax);
  const auto a_is_at_least = [&](PolyId operand) { return at_least(a, operand); };
  const auto is_at_least_b = [&](PolyId operand) { return at_least(operand, b); };
  if (!least_a.empty()) return std::ranges::all_of(least_a, is_at_least_b);
  if (!most_b.empty()) return std::ranges::all_of(most_b, a_is_at_least);
  return std::ranges::any_of(most_a, is_at_least_b) || std::ranges::any_of(least_b, a_is_at_least);
}

// None: the polynomial is not one atom of that kind.
std::vector<PolyId> Facts::operands_of(PolyId poly, AtomKind kind) const {
  const std::vector<Term>& terms = pool_[poly].terms;
  if (terms.size() != 1 || terms[0].atoms.size() != 1 || terms[0].coefficient != Rational{1, 1}) return {};
  const Atom& atom = pool_[terms[0].atoms[0]];
  return atom.kind == kind ? std::vector<PolyId>(atom.operands.begin(), atom.operands.end())
                           : std::vector<PolyId>();
}

bool Facts::equal_as_assumed(ExprId a, ExprId b) {
  if (equal(a, b)) return true;
  const auto number = pool_.constant(a) ? pool_.constant(a) : pool_.constant(b);
  return number && assumed_value(pool_.constant(a) ? b : a) == number;
}

std::optional<std::int64_t> Facts::assumed_value(ExprId expr) const {
  const auto value = pool_.evaluate(pool_.poly(expr), [&](StringId symbol) { return assumed_value(symbol); });
  return value && value->is_integer() ? std::optional(value->num) : std::nullopt;
}

bool Facts::equal_strides(ExprId a, ExprId b) {
  return equal(a, b) || normalize_stride(pool_.poly(a)) == normalize_stride(pool_.poly(b));
}

PolyId Facts::normalize_stride(PolyId poly) {
  if (PolyId known = learned_->normal_stride[poly]) return known;
  std::vector<PolyId> products;
  const Poly terms = pool_[poly];  // a copy: the pool grows
  for (const Term& term : terms.terms) {
    PolyId product = pool_.poly_number(term.coefficient);
    for (AtomId id : term.atoms) {
      const Atom atom = pool_[id];
      const bool is_floor = atom.kind == AtomKind::kMax && atom.operands.size() == 2;
      PolyId factor = pool_.from_atom(id);
      for (std::size_t i = 0; is_floor && i < 2; ++i)
        if (pool_.is_constant(atom.operands[i], 1)) factor = normalize_stride(atom.operands[1 - i]);
      product = pool_.mul(product, factor);
    }
    products.push_back(product);
  }
  const PolyId result = normalize(pool_.sum(products));
  learned_->normal_stride.at(poly) = result;
  return result;
}

PolyId Facts::normalize_atom(AtomId id) {
  const Atom atom = pool_[id];
  if (atom.kind == AtomKind::kSymbol) {
    const Known* known = learned_->known.find(atom.name);
    if (known != nullptr && known->equals) return normalize(*known->equals);
    return pool_.from_atom(id);
  }
  std::vector<PolyId> operands;
  for (PolyId operand : atom.operands) operands.push_back(normalize(operand));
  return normalize_apply(atom.kind, std::move(operands), atom.name);
}

PolyId Facts::normalize_apply(AtomKind kind, std::vector<PolyId> operands, StringId name) {
  if ((kind == AtomKind::kFloorDiv || kind == AtomKind::kMod) && operands.size() == 2) {
    if (auto divisor = pool_.constant(operands[1]); divisor && *divisor > 0)
      if (auto quotient = divide(operands[0], *divisor))
        return kind == AtomKind::kFloorDiv ? *quotient : pool_.poly_number(0);
  }
  if (kind == AtomKind::kMin || kind == AtomKind::kMax) {
    // Drops an operand that another one bounds.
    for (std::size_t i = 0; i < operands.size();) {
      bool bounded = false;
      for (std::size_t j = 0; j < operands.size() && !bounded; ++j) {
        if (i == j) continue;
        const PolyId difference = pool_.sub(operands[i], operands[j]);
        bounded = kind == AtomKind::kMin ? is_nonnegative(difference) : is_nonpositive(difference);
      }
      if (bounded) {
        operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    if (operands.size() == 1) return operands[0];
  }
  return pool_.apply(kind, std::move(operands), name);
}

// a / divisor where each term is a multiple of it by the facts.
std::optional<PolyId> Facts::divide(PolyId a, std::int64_t divisor) const {
  for (const Term& term : pool_[a].terms) {
    std::int64_t factor = term.coefficient.num;
    for (AtomId id : term.atoms) {
      if (pool_[id].kind != AtomKind::kSymbol) continue;
      const Known* known = learned_->known.find(pool_[id].name);
      if (known == nullptr) continue;
      std::int64_t multiple = known->divisor;
      if (known->value) multiple = std::lcm(multiple, *known->value);
      if (multiple != 0) factor *= std::gcd(multiple, divisor * term.coefficient.den);
    }
    if (factor % (divisor * term.coefficient.den) != 0) return std::nullopt;
  }
  return pool_.scale(a, Rational{1, divisor});
}

// Also where it is what recorded orders say of more than one symbol, and more:
//
//   u4 <= u2 + u3       u2 + u3 - u4 + u6     is (u2 + u3 - u4) + u6
bool Facts::is_nonnegative(PolyId poly) {
  if (are_terms_nonnegative(poly)) return true;
  const std::vector<PolyId>* bounds = nullptr;
  const std::vector<Term>& terms = pool_[poly].terms;
  const auto found = std::ranges::find_if(terms, [&](const Term& term) {
    const StringId symbol = subtracted_symbol(term);
    bounds = symbol ? learned_->bounds_of.find(symbol) : nullptr;
    return bounds != nullptr;
  });
  if (found == terms.end()) return false;
  const Term subtracted = *found;  // a copy: the pool grows
  for (PolyId bound : *bounds) {
    const auto same = std::ranges::find(pool_[bound].terms, subtracted.atoms, &Term::atoms);
    const Rational part = Rational{-same->coefficient.den, -same->coefficient.num} * subtracted.coefficient;
    if (are_terms_nonnegative(pool_.sub(poly, pool_.scale(bound, part)))) return true;
  }
  return false;
}

bool Facts::are_terms_nonnegative(PolyId poly) {
  // With every symbol at its lower bound, a polynomial without negative terms but the constant is
  // at its least. A symbol whose number is assumed is that number.
  Rational least;
  auto is_assumed = [&](AtomId id) {
    return pool_[id].kind == AtomKind::kSymbol && assumed_value(pool_[id].name).has_value();
  };
  for (const Term& term : pool_[poly].terms) {
    if (term.coefficient.num < 0 && !std::all_of(term.atoms.begin(), term.atoms.end(), is_assumed))
      return false;
    Rational product = term.coefficient;
    for (AtomId id : term.atoms) {
      std::int64_t lower = 0;
      const Atom& atom = pool_[id];
      if (atom.kind == AtomKind::kSymbol) {
        const Known* known = learned_->known.find(atom.name);
        if (known == nullptr) return false;
        const std::optional<std::int64_t> bound = known->value ? known->value : known->lower;
        if (!bound || *bound < 0) return false;
        lower = *bound;
      } else if (atom.kind == AtomKind::kFloorDiv || atom.kind == AtomKind::kMin ||
                 atom.kind == AtomKind::kMax) {
        const AtomKind atom_kind = atom.kind;
        bool some = false, all = true;
        for (PolyId operand : std::vector<PolyId>(atom.operands)) {
          const bool nonnegative = is_nonnegative(operand);
          some |= nonnegative;
          all &= nonnegative;
          if (const auto bound = pool_.constant(operand); bound && atom_kind == AtomKind::kMax)
            lower = std::max(lower, *bound);
        }
        if (atom_kind == AtomKind::kMax ? !some : !all) return false;
      } else {
        return false;
      }
      product = product * Rational{lower, 1};
    }
    least = least + product;
  }
  return least.num >= 0;
}

PolyId Facts::with_exact_divisions(PolyId poly) {
  const Poly source = pool_[poly];
  std::vector<PolyId> products;
  for (const Term& term : source.terms) {
    PolyId product = pool_.poly_number(term.coefficient.num);
    std::int64_t den = term.coefficient.den;
    for (AtomId id : term.atoms) {
      const Atom atom = pool_[id];
      PolyId factor;
      if (atom.kind == AtomKind::kSymbol) {
        factor = pool_.poly_symbol(atom.name);
        if (den != 1 && divides(den, atom.name)) {
          factor = pool_.floordiv(factor, pool_.poly_number(den));
          den = 1;
        }
      } else {
        std::vector<PolyId> operands;
        operands.reserve(atom.operands.size());
        for (PolyId operand : atom.operands) operands.push_back(with_exact_divisions(operand));
        factor = pool_.apply(atom.kind, std::move(operands), atom.name);
      }
      product = pool_.mul(product, factor);
    }
    if (den != 1) product = pool_.floordiv(product, pool_.poly_number(den));
    products.push_back(product);
  }
  return pool_.sum(products);
}

}  // namespace epweave
