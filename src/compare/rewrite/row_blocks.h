// In how many blocks a part has rows that lie in the order of the tokens: some of each block; one
// for a plain cut.
//
//   %x_0   2 rows of [4, 3], cut plainly                         1 block:  rows 0 1
//   %g_0   all_gather of %x_0 by 2 ranks: 4 rows of [8, 3]       2 blocks: rows 0 1 4 5
//   %g = cat([%g_0, %g_1], 0)                                    wrong: has rows 0 1 4 5 2 3 6 7
//
//   %r_0 = repeat(%x_0, [2, 1]): 4 rows of [8, 3]         2 blocks: rows 0 1 4 5
//   %r = cat([%r_0, %r_1], 0)                             wrong: has rows 0 1 0 1 2 3 2 3
//
//   %s_0 = sort(%x_0, 0)                                  an order of the part's own
//   %s = cat([%s_0, %s_1], 0)                             wrong: not the rows of sort(%x, 0)
//
// FrameCheck (verify_frames.h) follows the orders, and sets here what each share has. It asks what
// calls make of blocks that put rows elsewhere: gathers, reductions that scatter, exchanges of
// equal shares that are whole blocks, joins, splits and slices of rows, reshapes, repetitions. A
// reshape may not make rows, or groups of rows, of others that a part has side by side. Extents are
// compared by the numbers that they had when the graph was traced; where the facts do not say that
// blocks are so many for all others, that is an assumption. Rows in an order of the part's own no
// join may show; that rows of unknown order are joined in that of the whole is an assumption.
// Remainders of 0, 1, .. by c repeat themselves, and pair with blocks of which a part has a
// multiple of c rows. Reports rewrite-rows and rewrite-join.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/rewrite/rewrite_claims.h"
#include "ir/facts.h"

namespace epweave {

class RowBlocks {
 public:
  static constexpr std::int64_t kUnknown = 0;
  static constexpr std::int64_t kOwn = -1;      // an order of the part's own
  static constexpr std::int64_t kAny = -2;      // rows that are like each other
  static constexpr std::int64_t kCounted = -3;  // 0, 1, .., or remainders of these

  // It knows how pieces are cut.
  explicit RowBlocks(RewriteClaims& claims);

  // In which blocks a part has rows, and the rows that it numbers, from this call of B on: the part
  // itself, or one that writes it.
  void set(NodeId share, std::int64_t rows, std::int64_t numbered, NodeId since);
  // For all extents, as far as operands say it: once `part` is set.
  void note_extents(NodeId part);
  // In how many blocks a call puts rows of its first share that lie in the order of the tokens;
  // kUnknown: it is not known.
  std::int64_t regroup(NodeId part);

  // Rows that a part takes together with numbers that repeat themselves.
  void check_remainders(NodeId part);
  void check_join(NodeId id);
  // Rows of a part that a node takes for rows of the whole: they must be in the whole's order.
  void check_taken(NodeId id, NodeId part);

  // Whether the rows of a share are in an order of the part's own.
  bool has_own_order(NodeId b) const { return blocks_[b] == kOwn; }

  // What a piece is an element of; of another node, itself.
  NodeId split_of(NodeId piece) const;

  // How many blocks its rows are of; 0: they are in no such order, or it is not known.
  std::int64_t known_blocks(NodeId b) const { return std::max<std::int64_t>(blocks_[b], 0); }
  // In how many blocks the rows are that a value numbers; 0: it numbers none in such an order.
  std::int64_t numbered_blocks(NodeId b) const { return std::max<std::int64_t>(numbered_[b], 0); }
  // Whether the rows of a share are in the order of the tokens, one behind the other.
  bool has_token_order(NodeId b) const { return blocks_[b] == 1; }

  // Whether two shares of one value, of which one was cut from it, have their rows in the same
  // blocks; none: not known. Shares that were computed have those of what they were computed of.
  std::optional<bool> are_cut_alike(NodeId p, NodeId q) const;

  // Rows of unknown order that were joined; rows grouped as when traced.
  const std::vector<std::string>& assumptions() const { return assumptions_; }

 private:
  using Sizes = std::vector<std::int64_t>;
  // Which of c rows 0, 1, .. count: data, which repeat themselves.
  bool is_remainder(NodeId share) const { return blocks_[share] == kCounted && numbered_[share] != kCounted; }
  // Rows that are like each other, or counted, lie as if cut plainly, once others come between.
  bool lies_plainly(NodeId share) const { return blocks_[share] == kAny || blocks_[share] == kCounted; }
  std::int64_t plain_blocks(NodeId share) const { return lies_plainly(share) ? 1 : blocks_[share]; }

  // Of a tensor, each extent; empty: it is none, or has an extent without a number.
  Sizes sizes_in_a(NodeId id);
  Sizes sizes_in_b(NodeId id);
  // The dimension along which a part of a value, or a piece of it, has less than all; -1: there is
  // not just one.
  int divided_dimension(NodeId b);
  bool is_share(NodeId b) const;

  bool is_known_equal(ExprId x, ExprId y);
  ExprId groups_of(NodeId share);
  void take_groups(NodeId id);
  ExprId find_numbered_groups(NodeId id);
  void divide_groups(NodeId id, ExprId all, ExprId by, std::int64_t traced);
  void rest_on_traced(NodeId id, std::int64_t blocks);
  ExprId product(const TensorType* type, std::size_t dims);
  ExprId rows_in_a(NodeId id);

  std::int64_t blocks_of_piece(NodeId id);
  std::int64_t blocks_of_repeat(NodeId id, NodeId from);
  std::int64_t blocks_of_reshape(NodeId id, NodeId from);
  std::int64_t blocks_of_exchange(NodeId id, NodeId from);
  std::int64_t blocks_of_gather(NodeId id, NodeId from);
  std::int64_t blocks_of_scatter(NodeId id, NodeId from);
  std::int64_t blocks_of_cat(NodeId id);
  std::int64_t blocks_of_split(NodeId id, NodeId from);
  std::int64_t blocks_of_slice(NodeId id);
  void note_period(NodeId id);
  // In how many blocks rows are: as traced, and for all sizes.
  struct Blocks {
    std::int64_t count = 1;
    ExprId groups;
  };
  // Where this node of B stands.
  std::int64_t blocks_at(NodeId id, NodeId share);
  void assume_joined(NodeId id, NodeId origin);
  // `verb`: what the node does with rows of a part; `whole`: in how many blocks the whole has them.
  bool check_in_order(NodeId id, NodeId part, std::string_view verb, const Blocks& whole);
  void check_counted(NodeId id, NodeId counted, NodeId rows);
  void check_numbered(NodeId id, NodeId counted, std::int64_t blocks);
  bool repeats_within_blocks(NodeId counted, NodeId rows, const Blocks& blocks);
  // The first argument, if it is a share.
  NodeId first_share(NodeId id) const;

  RewriteClaims& claims_;
  const Context& context_;
  ExprPool& exprs_;
  const Body& a_;
  const Body& b_;
  Facts &facts_a_, &facts_b_;
  // Of a share of a value, as it was traced: behind all that writes it, and up to each call that
  // writes it, in order.
  IdVector<NodeId, std::int64_t> blocks_;
  struct Before {
    NodeId call;
    std::int64_t blocks = 0;
  };
  SideTable<NodeId, std::vector<Before>> before_;
  IdVector<NodeId, std::size_t> place_;  // of a node of B among all; empty until it is asked for
  // As many for all sizes, where that is no literal, and as far as it is known.
  SideTable<NodeId, ExprId> groups_;
  SideTable<NodeId, ExprId> numbered_groups_;  // of numbers: of the rows that they number
  std::vector<std::string> assumptions_;
  SideTable<NodeId, std::int64_t> numbered_;  // of numbers: of the rows that they number
  // Of 0, 1, .. that were divided: as many rows have the same number, or all remainders. 0: one.
  SideTable<NodeId, std::int64_t> period_;
  std::set<std::pair<NodeId, std::int64_t>> traced_;  // of A, and blocks: an assumption is printed once
};

}  // namespace epweave
