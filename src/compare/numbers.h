// Scalars of A beside those of B: symbols of A that are numbers in B's inputs count as those numbers, as do
// symbols of B that are numbers in A's, or that B's table says to be a number; and parts are as large as the first split or join of so many parts says.
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

  // Takes it that what counts the symbols of `whole` is divided as `whole` is here, into `parts` that add up
  // to it. Symbols whose division into so many parts is known stay as they are.
  void learn_division(ExprId whole, std::span<const ExprId> parts);

  // All of it, the share of it, or neither.
  Fraction match(ExprId a, ExprId b, Share share);
  // As above; `b` is a number or a symbolic scalar.
  Fraction match_scalar(ExprId a, Arg b, Share share);
  // Whether a statement of B about symbols is that of A.
  bool is_same_statement(ExprId a, ExprId b);
  // Whether two scalars of B are equal.
  bool is_same(ExprId a, ExprId b) { return facts_.equal(a, b); }
  // a * b, both of B.
  ExprId multiply(ExprId a, ExprId b) {
    return facts_.pool().from_poly(facts_.pool().mul(facts_.pool().poly(a), facts_.pool().poly(b)));
  }
  // Whether b is the share of a: by what is known of the division, else 1/parts of it.
  bool is_share(ExprId a, ExprId b, Share share);

 private:
  // b : a = part : whole
  struct Division {
    PolyId whole;
    std::vector<PolyId> parts;
  };
  struct Known {
    StringId symbol;
    std::int64_t number = 0;
  };
  void learn(const Context& context, TypeId before, TypeId after);
  // What B's own table says that an expression is.
  std::optional<std::int64_t> assumed_number(ExprId b);
  // 3*s0 = 12: s0 is 4. None: the expression is not a multiple of one symbol.
  std::optional<Known> solve(ExprId expr, std::int64_t number) const;
  std::vector<StringId> symbols_of(ExprId a);
  const Division* find_division(ExprId a, std::uint32_t parts);
  PolyId in_numbers(ExprId a);

  Facts facts_;
  SideTable<StringId, std::optional<std::int64_t>> numbers_;    // of A's symbols
  SideTable<StringId, std::optional<std::int64_t>> numbers_b_;  // of B's
  SideTable<ExprId, PolyId> in_numbers_;
  std::map<std::pair<StringId, std::size_t>, Division> divisions_;  // by symbol of A and number of parts
};

}  // namespace epweave
