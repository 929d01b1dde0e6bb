// Symbolic integer expressions: extents of tensors and scalars computed from them.
//
// An expression keeps the text its producer wrote (files round-trip exactly) and, beside
// it, one canonical polynomial: a sum of terms, each a rational coefficient times a
// product of atoms. An atom is a symbol or an application that is not polynomial
// (`u0//2`, `Max(1, u0)`, `Eq(u0, 3)`), whose operands are polynomials again.
// Two expressions mean the same number for all symbol values if their polynomials are
// the same id; what is known about the symbols is applied by `Facts` (ir/facts.h).
//
//   "3*u0 + u0"        -> 4*u0
//   "(2*u0)//2"        -> u0             (every coefficient is divisible)
//   "u0//2 + u0//2"    -> 2*(u0//2)      (u0 only if 2 divides u0: a fact)
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash_index.h"
#include "base/id.h"
#include "base/interner.h"
#include "base/short_vector.h"
#include "base/word_table.h"

namespace epweave {

using ExprId = Id<struct ExprTag>;
using PolyId = Id<struct PolyTag>;
using AtomId = Id<struct AtomTag>;

struct Rational {
  std::int64_t num = 0;
  std::int64_t den = 1;  // > 0, coprime with num

  static Rational of(std::int64_t num, std::int64_t den = 1);
  bool is_integer() const { return den == 1; }
  friend bool operator==(const Rational&, const Rational&) = default;
};

// Throws InputError where the result does not fit in 64 bits.
Rational operator+(Rational a, Rational b);
Rational operator*(Rational a, Rational b);

enum class AtomKind : std::uint8_t {
  kSymbol,
  kInfinity,
  kFloorDiv,
  kMod,
  kMin,
  kMax,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kNot,
  kFunction,  // any other application, kept by name
};

struct Atom {
  AtomKind kind = AtomKind::kSymbol;
  StringId name;                 // of a symbol or function
  std::vector<PolyId> operands;  // of an application
  friend bool operator==(const Atom&, const Atom&) = default;
};

using AtomList = ShortVector<AtomId, 2>;  // nearly all terms are a multiple of one symbol

struct Term {
  Rational coefficient;
  AtomList atoms;  // sorted, with repetition for powers
  friend bool operator==(const Term&, const Term&) = default;
};

// Terms sorted by their atoms; no zero coefficients. Empty is the number 0.
struct Poly {
  std::vector<Term> terms;
  friend bool operator==(const Poly&, const Poly&) = default;
};

// How much a polynomial is when written out: applications share their operands, the text repeats
// them.
struct PolyShape {
  std::uint32_t size = 0;   // atoms and numbers, those within operands too
  std::uint32_t depth = 0;  // applications within one another
};

// All expressions, polynomials and atoms, each stored once.
//
// What would be too large to write out is not built: every operation throws InputError where its
// result would have more than 65,536 atoms and numbers or more than 64 applications within one
// another, or where it would multiply out to more than 16,384 terms or 256 factors. So text and
// recursion over a polynomial are bounded.
class ExprPool {
 public:
  explicit ExprPool(StringTable& strings);

  // Parses and interns `text`. Throws InputError with column and caret if it is not an expression.
  ExprId parse(std::string_view text);
  ExprId number(std::int64_t value);
  // The expression of a polynomial, its text written in sympy's style.
  ExprId from_poly(PolyId poly);

  std::string_view text(ExprId id) const { return strings_[exprs_[id].text]; }
  StringId text_id(ExprId id) const { return exprs_[id].text; }
  PolyId poly(ExprId id) const { return exprs_[id].poly; }
  // The value of an expression without symbols.
  std::optional<std::int64_t> constant(ExprId id) const { return constant(exprs_[id].poly); }

  // Arithmetic on expressions. Each result is computed once: types of a graph repeat the same few
  // extents.
  ExprId add(ExprId a, ExprId b) { return combine(Operation::kAdd, a, b); }
  ExprId sub(ExprId a, ExprId b) { return combine(Operation::kSub, a, b); }
  ExprId mul(ExprId a, ExprId b) { return combine(Operation::kMul, a, b); }
  ExprId floordiv(ExprId a, ExprId b) { return combine(Operation::kFloorDiv, a, b); }
  ExprId mod(ExprId a, ExprId b) { return combine(Operation::kMod, a, b); }
  ExprId sum(std::span<const ExprId> terms);
  ExprId min(ExprId a, ExprId b) { return combine(Operation::kMin, a, b); }
  ExprId max(ExprId a, ExprId b) { return combine(Operation::kMax, a, b); }

  const Poly& operator[](PolyId id) const { return polys_[id]; }
  const Atom& operator[](AtomId id) const { return atoms_[id]; }
  std::optional<std::int64_t> constant(PolyId id) const;
  bool is_constant(PolyId id, std::int64_t value) const { return constant(id) == value; }

  PolyId poly_number(std::int64_t value) { return poly_number(Rational{value, 1}); }
  PolyId poly_number(Rational value);
  PolyId poly_symbol(StringId name);
  PolyId from_atom(AtomId atom);
  PolyId add(PolyId a, PolyId b);
  PolyId sum(std::span<const PolyId> terms);
  PolyId sub(PolyId a, PolyId b);
  PolyId mul(PolyId a, PolyId b);
  PolyId scale(PolyId a, Rational factor);
  // Exact quotient a / b where it is a polynomial with integer-valued form known syntactically,
  // else none.
  std::optional<PolyId> divide_exactly(PolyId a, PolyId b);
  PolyId floordiv(PolyId a, PolyId b);
  PolyId mod(PolyId a, PolyId b);
  PolyId apply(AtomKind kind, std::vector<PolyId> operands, StringId name = {});

  // Every symbol replaced by what `value_of` gives for its name (none: left alone). Operands of
  // applications too.
  template <class ValueOf>  // std::optional<PolyId>(StringId)
  PolyId substitute(PolyId id, const ValueOf& value_of);

  // Sorted, without repetition; of applications too.
  const std::vector<StringId>& symbols(PolyId id);
  const std::vector<StringId>& symbols(ExprId id) { return symbols(exprs_[id].poly); }
  // The number the polynomial is when each symbol has the value `hint_of` gives; none if one has no
  // value.
  template <class HintOf>  // std::optional<std::int64_t>(StringId)
  std::optional<Rational> evaluate(PolyId id, const HintOf& hint_of) const;

  std::string print(PolyId id) const;
  PolyShape shape(PolyId id) const { return poly_shapes_[id]; }
  StringTable& strings() { return strings_; }

 private:
  struct Expr {
    StringId text;
    PolyId poly;
  };
  friend class ExprParser;
  enum class Operation : std::uint8_t { kAdd, kSub, kMul, kFloorDiv, kMod, kMin, kMax };

  ExprId combine(Operation operation, ExprId a, ExprId b);
  PolyId combine_polys(Operation operation, PolyId a, PolyId b);
  PolyId intern(Poly poly);
  AtomId intern(Atom atom);
  // a + factor * b
  PolyId add_multiple(PolyId a, PolyId b, Rational factor);
  PolyId merge_terms(std::vector<Term> terms);
  PolyShape measure(const Poly& poly) const;
  PolyShape measure(const Atom& atom) const;
  void check_product(PolyId a, PolyId b) const;
  std::string print_atom(AtomId id) const;
  static std::optional<Rational> apply_numbers(AtomKind kind, std::span<const Rational> operands);

  StringTable& strings_;
  IdVector<ExprId, Expr> exprs_;
  IdVector<PolyId, Poly> polys_;
  IdVector<AtomId, Atom> atoms_;
  IdVector<PolyId, PolyShape> poly_shapes_;
  IdVector<AtomId, PolyShape> atom_shapes_;
  SideTable<StringId, ExprId> expr_of_text_;
  HashIndex poly_ids_, atom_ids_;
  SideTable<AtomId, PolyId> poly_of_atom_;
  SideTable<StringId, PolyId> poly_of_symbol_;
  SideTable<PolyId, ExprId> expr_of_poly_;
  std::unordered_map<std::int64_t, ExprId> numbers_;
  WordTable combinations_;                                   // an operation and two expressions
  std::vector<ExprId> combined_;                             // of each; none until it was computed
  std::deque<std::vector<StringId>> symbol_lists_;           // a deque: references stay valid while it grows
  SideTable<PolyId, const std::vector<StringId>*> symbols_;  // null: not asked for yet
};

template <class ValueOf>
PolyId ExprPool::substitute(PolyId id, const ValueOf& value_of) {
  if (symbols(id).empty()) return id;
  const Poly poly = polys_[id];  // a copy: the table grows below
  std::vector<PolyId> products;  // added at once: a sum over ranks has a term for each
  products.reserve(poly.terms.size());
  for (const Term& term : poly.terms) {
    PolyId product;
    for (AtomId atom_id : term.atoms) {
      const Atom atom = atoms_[atom_id];
      PolyId factor;
      if (atom.kind == AtomKind::kSymbol) {
        const std::optional<PolyId> value = value_of(atom.name);
        factor = value ? *value : from_atom(atom_id);
      } else if (atom.operands.empty()) {
        factor = from_atom(atom_id);
      } else {
        std::vector<PolyId> operands;
        operands.reserve(atom.operands.size());
        for (PolyId operand : atom.operands) operands.push_back(substitute(operand, value_of));
        factor = apply(atom.kind, std::move(operands), atom.name);
      }
      product = product ? mul(product, factor) : factor;
    }
    products.push_back(product ? scale(product, term.coefficient) : poly_number(term.coefficient));
  }
  return sum(products);
}

template <class HintOf>
std::optional<Rational> ExprPool::evaluate(PolyId id, const HintOf& hint_of) const {
  Rational sum;
  for (const Term& term : polys_[id].terms) {
    Rational product = term.coefficient;
    for (AtomId atom_id : term.atoms) {
      const Atom& atom = atoms_[atom_id];
      std::optional<Rational> factor;
      if (atom.kind == AtomKind::kSymbol) {
        if (std::optional<std::int64_t> hint = hint_of(atom.name)) factor = Rational{*hint, 1};
      } else {
        std::vector<Rational> operands;
        for (PolyId operand : atom.operands) {
          auto value = evaluate(operand, hint_of);
          if (!value) return std::nullopt;
          operands.push_back(*value);
        }
        factor = apply_numbers(atom.kind, operands);
      }
      if (!factor) return std::nullopt;
      product = product * *factor;
    }
    sum = sum + product;
  }
  return sum;
}

}  // namespace epweave
