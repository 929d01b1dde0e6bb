// What is known about the symbols of a graph, and arithmetic under it.
//
// Sources: each symbol's recorded assertions ("Eq(Mod(u0, 8), 0)", "Eq(u4 + u5, 3*u0)"), its range,
// what it was replaced by, assumptions a pass wrote down, and torchtitan_chunk_symbol_hints (the
// chunker that wrote them took the symbol to be that number). `normalize` brings polynomials that
// are equal under these facts to the same id:
//
//   8 divides u0:       2*(u0//2)  and  u0        both become u0
//   u4 + u5 = 3*u0:     u4 + u5                   becomes 3*u0
//   512 <= u0:          Max(1, u0)                becomes u0
//   u4 <= u2 + u3:      Min(u4, u2 + u3)          becomes u4
//
// A normalised polynomial may have rational coefficients (u0/2); `expr` writes it with floor
// divisions that the facts make exact.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/few_table.h"
#include "ir/graph.h"

namespace epweave {

// What was learned from the symbols of a graph, and what it made of polynomials. All facts about
// graphs whose symbols say the same share it: a context keeps what was learned last.
struct LearnedFacts {
  struct Known {
    std::int64_t divisor = 1;
    std::optional<std::int64_t> lower, hint, value;
    std::optional<PolyId> equals;  // eliminated: this polynomial instead
  };

  std::vector<std::uint64_t> from;  // what it was learned from
  FewTable<StringId, Known> known;
  bool is_complete = false;
  SideTable<PolyId, PolyId> normal;  // what normalize gave, kept once all facts are learned
  SideTable<PolyId, PolyId> normal_stride;
  std::vector<PolyId> bounds;  // sums of symbols that are known to be at least 0, as recorded
  // The same, normalised, by each symbol that they subtract.
  FewTable<StringId, std::vector<PolyId>> bounds_of;
};

class Facts {
 public:
  explicit Facts(const Graph& graph);

  // Takes it that the symbol is this number, beyond what the graph says of it.
  void assume_number(StringId symbol, std::int64_t number);
  // Takes the numbers that symbols were when traced, where only another graph says them.
  void take_hints(const Facts& other);

  PolyId normalize(PolyId poly);
  PolyId normalize(ExprId expr) { return normalize(pool_.poly(expr)); }
  bool equal(PolyId a, PolyId b) { return a == b || normalize(a) == normalize(b); }
  bool equal(ExprId a, ExprId b) { return a == b || normalize(a) == normalize(b); }
  // Also where one is a number, and the other is that number by recorded assumptions about all its
  // symbols: the border between what scales with a symbol and what literals fix.
  bool equal_as_assumed(ExprId a, ExprId b);
  // Whether the two are known to be different numbers.
  bool differ(ExprId a, ExprId b);
  bool at_least(ExprId a, ExprId b);  // known to be
  // As `equal`, for strides and offsets: Max(1, x) counts as x, since a stride beside an extent of
  // 0 is never used.
  bool equal_strides(ExprId a, ExprId b);
  // An expression for a polynomial, every division exact.
  ExprId expr(PolyId poly) { return pool_.from_poly(with_exact_divisions(poly)); }

  // Whether `divisor` is known to divide the symbol.
  bool divides(std::int64_t divisor, StringId symbol) const;
  // The symbol's number, where a recorded assumption says it.
  std::optional<std::int64_t> assumed_value(StringId symbol) const;
  // The same of an expression of such symbols.
  std::optional<std::int64_t> assumed_value(ExprId expr) const;
  // The number of the symbol when the graph was traced, if it was recorded.
  std::optional<std::int64_t> hint(StringId symbol) const;
  std::optional<std::int64_t> hint(PolyId poly) const;
  std::optional<std::int64_t> hint(ExprId expr) const { return hint(pool_.poly(expr)); }
  // Whether the polynomial is known to be at least (at most) 0.
  bool is_nonnegative(PolyId poly);
  bool is_nonpositive(PolyId poly) { return is_nonnegative(pool_.scale(poly, Rational{-1, 1})); }

  ExprPool& pool() const { return pool_; }

 private:
  using Known = LearnedFacts::Known;
  // Facts that nothing else shares.
  LearnedFacts& own();
  // The same number without rational coefficients: 3*u0/2 is 3*(u0//2) where 2 divides u0.
  PolyId with_exact_divisions(PolyId poly);
  void learn(const Symbol& symbol);
  void learn_equality(StringId symbol, PolyId difference);
  void learn_order(const Atom& fact);
  void index_bounds();
  bool are_terms_nonnegative(PolyId poly);
  bool is_symbol_or_part(AtomId id) const;
  bool has_symbols_and_parts_only(PolyId poly) const;
  StringId subtracted_symbol(const Term& term) const;
  bool at_least(PolyId a, PolyId b);
  std::vector<PolyId> operands_of(PolyId poly, AtomKind kind) const;
  PolyId normalize_atom(AtomId atom);
  PolyId normalize_stride(PolyId poly);
  PolyId normalize_apply(AtomKind kind, std::vector<PolyId> operands, StringId name);
  std::optional<PolyId> divide(PolyId a, std::int64_t divisor) const;

  ExprPool& pool_;
  std::shared_ptr<LearnedFacts> learned_;
};

}  // namespace epweave
