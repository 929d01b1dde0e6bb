// Scalars of A beside those of B: symbols of A that are numbers in B's inputs count as those
// numbers, as do symbols of B that are numbers in A's, or that B's table says to be a number; a
// symbol of A that only parts of B bind is what the parts add up to; an expression of A that A's
// own facts make a number is that number; and parts are as large as the first split or join of so
// many parts says.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

// How much of A's scalar B's is.
enum class Fraction : std::uint8_t { kNone, kAll, kPart };

// Part number `part` of `parts`.
struct Share {
  std::uint32_t part = 0, parts = 1;
};

class Numbers {
 public:
  Numbers(const Graph& a, const Graph& b);

  // Takes it that what counts the symbols of `whole` is divided as `whole` is here, into `parts`
  // that add up to it. Symbols whose division into so many parts is known stay as they are.
  void learn_division(ExprId whole, std::span<const ExprId> parts);

  // Takes it that `symbol` of A, which B does not have, is what makes `whole` the sum of the parts.
  // Other such symbols in it may be learned before or later.
  void learn_sum(StringId symbol, ExprId whole, std::span<const ExprId> parts);

  // All of it, the share of it, or neither.
  Fraction match(ExprId a, ExprId b, Share share);
  // As above; `b` is a number or a symbolic scalar.
  Fraction match_scalar(ExprId a, Arg b, Share share);
  // Whether a statement of B about symbols is that of A.
  bool is_same_statement(ExprId a, ExprId b);
  // What a part has of a symbol of A that is divided itself; none where it is not.
  std::optional<PolyId> find_share(StringId symbol, Share share) const;
  // What an expression of either graph is, where symbols that are numbers in the inputs of the
  // other have these numbers; none: that leaves a symbol.
  std::optional<std::int64_t> find_number(ExprId expr) {
    if (const auto number = facts_.pool().constant(expr)) return number;
    return known_numbers_.empty() ? std::nullopt : facts_.pool().constant(facts_.normalize(in_numbers(expr)));
  }
  // Of each; none where one has none.
  std::optional<std::vector<std::int64_t>> find_numbers(std::span<const ExprId> exprs);
  // Symbols that are numbers because the inputs of the two graphs say so.
  const std::vector<std::pair<StringId, std::int64_t>>& known_numbers() const { return known_numbers_; }
  // Whether two scalars of B are equal.
  bool is_same(ExprId a, ExprId b) { return facts_.equal(a, b); }
  PolyId normalize(PolyId b) { return facts_.normalize(b); }
  // Whether numbers of B add up to one of A.
  bool is_sum(ExprId whole, std::span<const ExprId> parts);
  // a * b, both of B.
  ExprId multiply(ExprId a, ExprId b) {
    return facts_.pool().from_poly(facts_.pool().mul(facts_.pool().poly(a), facts_.pool().poly(b)));
  }
  // Whether b is the share of a, by what is known of the division; of what is divided nowhere, no
  // share is known.
  bool is_share(ExprId a, ExprId b, Share share);

 private:
  // b : a = part : whole
  struct Division {
    PolyId whole;
    std::vector<PolyId> parts;
  };
  // An extent of an input: `a` in A, `b` in B.
  struct Extents {
    ExprId a, b;
  };
  using Values = SideTable<StringId, std::optional<PolyId>>;
  std::vector<Extents> list_extents(const Graph& a, const Graph& b) const;
  // Whether something was learned that was not known.
  bool learn(const Extents& extents);
  void learn_replacements(const Graph& a);
  // 3*s0 + s1 = 12, where s1 is known to be 3: s0 is 3. None: not one symbol is left, or not
  // linear.
  struct Solution {
    StringId symbol;
    PolyId value;
  };
  std::optional<Solution> solve(ExprId expr, PolyId value, const Values& known) const;
  // What the symbol must be for the polynomial, linear in it, to be `value`.
  std::optional<PolyId> solve_for(StringId symbol, PolyId poly, PolyId value) const;
  PolyId substitute(PolyId poly, const Values& known) const;
  std::vector<StringId> symbols_of(ExprId a);
  const Division* find_division(ExprId a, std::uint32_t parts);
  PolyId in_numbers(ExprId a);
  // As in_numbers, or the number that A's own facts make of it: u0//4, where A says that u0 is 128.
  PolyId number_of_a(ExprId a);

  Facts facts_a_;
  Facts facts_;    // of B
  Values values_;  // of A's symbols, as B says it
  std::vector<std::pair<StringId, std::int64_t>> known_numbers_;
  std::vector<StringId> sums_;  // those that are what parts add up to
  Values numbers_b_;            // of B's symbols that are numbers
  SideTable<ExprId, PolyId> in_numbers_;
  std::map<std::pair<StringId, std::size_t>, Division> divisions_;  // by symbol of A and number of parts
};

}  // namespace epweave
