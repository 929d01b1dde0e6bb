// Parts of ops that need more than their part of the rows, by the mapping of the call's dimensions
// (ops/mapping.h).
//
//   %p = _softmax(%x, 0)      %p_0 = _softmax(%x_0, 0), %x_0 half of the rows of %x     not half of %p
//   %f = flip(%x, [0])        %f_0 = flip(%x_0, [0])                                    not half of %f
//
//   %g = gather(%x, 1, %i)    %g_1 = gather(%x, 1, %i_1)    not half of %g: the first rows of %x
//
// A dimension of which a part has less than all must be passed to the result, summed (parts of sums
// add up: that is for the join to prove), or be one whose elements data choose: that rows which are
// exchanged or picked are those of their tokens is taken for granted
// (docs/rewrite_verification.md). A sort of a part's own rows gives them in an order of its own,
// which no join may show (row_blocks.h); one that orders each column on its own gives no rows.
// What one operand has less of, each operand that has that dimension has less of; one that is
// broadcast along it does not have it. Reports rewrite-rows.
#pragma once

#include <cstddef>
#include <span>

#include "compare/rewrite/rewrite_claims.h"
#include "ir/facts.h"
#include "ops/mapping_memo.h"

namespace epweave {

class RowCheck {
 public:
  RowCheck(RewriteClaims& claims, Numbers& numbers)
      : claims_(claims), numbers_(numbers), facts_(claims.facts_a()) {}

  // A node of B that is a part.
  void check(NodeId part);

 private:
  // A dimension that operands share: one that has less than all of it, and one that has all.
  struct Cut {
    NodeId divided, whole;
    std::size_t divided_dim = 0, whole_dim = 0;
    void note(NodeId operand, std::size_t dim, bool is_divided) {
      (is_divided ? divided : whole) = operand;
      (is_divided ? divided_dim : whole_dim) = dim;
    }
  };
  // Of a node of A, whatever part of it asks.
  const CallMapping& mapping_of(NodeId origin);
  bool check_cut(NodeId part, const Cut& cut);
  void check_sums(NodeId part, const CallMapping& mapping, std::span<const Cut> cuts);
  bool is_as_traced(NodeId origin, const CallMapping& mapping, std::span<const Factor> factors,
                    ExprId extent);
  // Of tensors; FlexAttention's calls have rules of their own (verify_attention.h).
  void check_attention(NodeId part);
  bool has_heads_of_whole(NodeId part, NodeId key);
  bool takes_tables_of_whole(NodeId part);
  bool check_exchange(NodeId part);
  bool is_sort_of_whole_rows(const Node& origin) const;
  bool takes_run_of_blocks(const Node& origin, const Node& part);
  bool is_divided(ExprId whole, ExprId piece);
  // The first dimension of an operand of which the part has less than all.
  bool has_divided_operand(NodeId part);
  void fail(NodeId part, NodeId operand, std::size_t dim);

  RewriteClaims& claims_;
  Numbers& numbers_;
  Facts& facts_;
  MappingMemo mappings_;
  SideTable<NodeId, const CallMapping*> mapping_of_;  // null: not asked for yet
};

}  // namespace epweave
