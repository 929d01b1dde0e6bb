// Scalars of A beside those of B: symbols of A that are numbers in B's inputs count as those numbers.
#pragma once

#include <unordered_map>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

// How much of A's scalar B's is.
enum class Fraction : std::uint8_t { kNone, kAll, kPart };

class Numbers {
 public:
  Numbers(const Graph& a, const Graph& b);

  // All of it, 1/parts of it, or neither.
  Fraction match(ExprId a, ExprId b, std::uint32_t parts);
  // As above; `b` is a number or a symbolic scalar.
  Fraction match_scalar(ExprId a, Arg b, std::uint32_t parts);
  // Whether parts * b = a.
  bool is_fraction(ExprId a, ExprId b, std::uint32_t parts);

 private:
  void learn(const Graph& graph, TypeId before, TypeId after);
  PolyId in_numbers(ExprId a);

  Facts facts_;
  SideTable<StringId, std::optional<std::int64_t>> numbers_;
  SideTable<ExprId, PolyId> in_numbers_;
};

}  // namespace epweave
