// Whether two values that are one in A have equal parts in B, which can cut one value in two ways:
//
//   A: %c = bincount(%ids)           B: %c_0 = bincount(%ids_0), of some rows of %ids
//      %d = bincount(%ids)              %d_0 = bincount(%u_0), of its columns: other numbers
//
// Values of B are numbered once more, by what they are proved to be: all of a value of A has A's
// number, wherever B has it from (gathered once more, or in a bucket). A part is what its call of A
// makes of the parts that it takes; what else it takes is all of a value of A, or says how large
// the part is.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "analysis/effects.h"
#include "analysis/value_numbers.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/row_blocks.h"

namespace epweave {

class EqualParts {
 public:
  // `of_a`: A's numbers. `effects`: of B.
  EqualParts(const RewriteClaims& claims, const ValueNumbers& of_a, const Effects& effects,
             const RowBlocks& blocks);

  const ValueNumbers& numbers() const { return numbers_; }

  // kUnknown: a part that was computed, and a piece of the joined parts that is cut like it; also
  // where sizes or blocks are not known to be equal, nor to differ.
  enum class Verdict : std::uint8_t { kEqual, kUnknown, kOther };
  // Of two nodes of B that are shares of one value of A, or of two that the same code makes.
  Verdict compare(NodeId p, NodeId q) const;
  // Of all parts of two values of A.
  Verdict compare_parts(NodeId x, NodeId y) const;

 private:
  static KnownValues find_known(const RewriteClaims& claims, const ValueNumbers& of_a);
  bool is_piece(NodeId b) const { return claims_[b].kind == ClaimKind::kPiece; }

  // Of two numbers of B.
  Verdict compare_numbers(ExprId x, ExprId y) const;
  Verdict compare_sizes(NodeId p, NodeId q) const;
  Verdict compare_pieces(NodeId p, NodeId q) const;
  // Notes the pairs of nodes that two calls take in the same places.
  using NodePairs = std::vector<std::pair<NodeId, NodeId>>;
  Verdict compare_calls(const Node& x, const Node& y, NodePairs& pairs) const;
  Verdict pair_up(std::span<const Arg> x, std::span<const Arg> y, NodePairs& pairs) const;
  Verdict pair_up(Arg x, Arg y, NodePairs& pairs) const;
  // What an argument is a number of; none: it is no number that is known.
  ExprId number_of(Arg arg) const;

  const RewriteClaims& claims_;
  const ValueNumbers& of_a_;
  const RowBlocks& blocks_;
  ValueNumbers numbers_;
};

}  // namespace epweave
