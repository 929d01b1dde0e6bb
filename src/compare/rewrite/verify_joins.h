// What cuts a value of A into parts, and what makes it whole again.
//
//   %s = split_with_sizes(%x, [n0, n1], 0);  %x_0 = getitem(%s, 0)     all of %x, cut as the tokens are
//   %x = cat([%x_0, %x_1], 0)      %g = add(add(%g_0, %g_1), %g_2)     all parts, in order, each once
//
// A dimension of 4*s rows in 4 blocks is viewed as [4, s], split or joined along the second, and
// viewed as one dimension again. A join that lies in memory as the whole did joins permuted parts,
// and is permuted back:
//
//   %p_0 = permute(%x_0, [1, 0]); ..  %c = cat([%p_0, %p_1], 0); %x = permute(%c, [1, 0])    parts along 1
//
// Reports rewrite-split and rewrite-join.
#pragma once

#include <vector>

#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

class JoinCheck {
 public:
  JoinCheck(RewriteClaims& claims, Numbers& numbers);

  // How the tokens are divided: as the first split, or join of parts, into so many.
  void learn_divisions();
  // Symbols of A that only parts bind: as numbers they are what the joins of the parts add up to.
  void learn_sums();
  void check_split(NodeId id);
  void check_piece(NodeId id);
  // Sums in execution order: whether one is whole is known when the ones before it are checked.
  void check_join(NodeId id);
  // Whether a part has the sizes of the whole but for its share along `dim`; dim -1: exactly the
  // sizes.
  bool has_part_sizes(NodeId part, NodeId origin, std::int64_t dim);

 private:
  // The dimension that a call names, from the front; -1: none that there is.
  std::int64_t dim_of(const Node& node, std::size_t rank) const;
  ExprId extent_of_size(Arg size) const;
  std::vector<ExprId> part_numbers(NodeId origin) const;
  ExprId extent_of_part(Arg part, std::int64_t dim) const;
  void check_cat(NodeId id);
  void check_sum(NodeId id);

  std::size_t count_pieces(NodeId split) const;
  bool is_in_blocks(NodeId b) const;
  NodeId first_input(NodeId b) const;
  ExprId blocks_of(NodeId view, NodeId rows, std::int64_t dim);
  bool is_piece_of_blocks(NodeId id, const Claim& claim);
  void check_joined_blocks(NodeId id);
  std::vector<std::int64_t> order_of(NodeId id) const;
  void check_joined_in_order(NodeId id);

  RewriteClaims& claims_;
  Numbers& numbers_;
  Context& context_;
  const Body& a_;
  const Body& b_;
};

}  // namespace epweave
