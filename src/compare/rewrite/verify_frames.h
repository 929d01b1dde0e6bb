// Which row of the whole is row i of a part's value? Rows that are paired, added up in pairs,
// joined, or written where others were picked must be those of the same tokens.
//
//   %g = all_gather(%x)    rows of the tokens, of which a part has some of each rank's block
//   %t = sort(%x)          rows in sort(%t); %t[1] numbers rows in the order of the tokens
//   %y = %h[%t[1]]         rows in sort(%t)
//   mul(%y, %w)            wrong where %w's rows are in the order of the tokens, or of another sort
//   index_put(%o, [%t[1]], %y)      the order of the tokens: that is what the numbers number, and
//                                   they are in the order of the rows
//   index_put(%o, [arange], %y)     wrong: puts the first sorted row in the first token's place
//
// Each value with rows has an order, a term (analysis/frame_terms.h): of the tokens, of which a
// part has some of so many blocks (row_blocks.h counts them); made by a sort; picked by numbers;
// placed; exchanged, and back; gathered; each row c times; joined; alike, as constants are; as
// data make it; unknown, of which only the same value is. Numbers have a second one, of the rows
// that they number. Whether two meet, one function says (row_meetings.h): right, refused, or an
// assumption. Equal calls of A make one order where their parts in B are equal, too
// (equal_parts.h). 0, 1, .. are in the order of the rows that they pick; moved, they permute a
// part's own, or number rows of the tokens that lie one behind another. Rows that are repeated by
// counts lie in runs (repeat_interleave): they may meet sorted or received rows of which the
// counts are (verify_counts.h), and are in the order of these from there on. That parts of rows of
// unknown order add up is an assumption, and so are tables exchanged by counts that are computed
// again. Split sizes and ends of groups must count what the rows that they cut were sorted by
// (verify_counts.h); where that is not known, it is an assumption. Reports rewrite-rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/frame_terms.h"
#include "compare/rewrite/assumed_rows.h"
#include "compare/rewrite/known_orders.h"
#include "compare/rewrite/part_facts.h"
#include "compare/rewrite/position_names.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/row_meetings.h"
#include "compare/rewrite/sorted_counts.h"

namespace epweave {

class FrameCheck {
 public:
  FrameCheck(RewriteClaims& claims, const BothEffects& effects, RowBlocks& blocks);

  // The call that `facts` saw last: a node of A with parts, in A's order.
  void add(NodeId origin, NodeId part, const PartFacts& facts);
  // Each node of A, behind that.
  void note_writes_of(NodeId a) { orders_.leave(a); }

  const std::vector<std::string>& assumptions() const { return assumed_.list(); }

 private:
  using Operand = PartFacts::Operand;
  using Order = FrameOrder;
  using Entry = FrameOrders;

  NodeId value_in_a(const Operand& operand) const;
  std::string name_of(const Operand& operand) const;
  const Operand* written_operand() const;
  // The dimension is one of those along which the operand is divided.
  static bool is_along(const Operand& operand, std::int64_t dim);
  bool is_mask(const Operand& positions) const;
  bool has_as_many_rows(const Operand& source, NodeId origin) const;
  ExprId divided_extent(NodeId a, const std::vector<bool>& is_divided) const;

  Entry visit(NodeId origin);
  Entry counted(NodeId origin) const;
  Entry element(NodeId origin);
  Order rows_of_result(NodeId origin, Entry& entry);
  Order common();

  // Rows that are sorted, picked, placed.
  Order numbering(const Order& rows);
  Order sorted_order(NodeId sort);
  Order made_by(NodeId call, const Order& rows);
  Order sorted(NodeId call);
  bool brings_tokens_together(const Operand& keys, const Order& rows, const Order& numbered) const;
  void require_tokens_numbered();
  Order order_among(const Order& rows, const Operand& positions);
  Order as_numbered(const Operand& positions, const Order& target);
  Order picked(const Operand& positions);
  Order put(NodeId origin, const Operand& positions);

  // Rows that are exchanged, and grouped by counts.
  Order exchanged(NodeId origin);
  bool moves_blocks(NodeId origin);
  void check_counts(NodeId origin, const Order& rows);
  void check_groups(NodeId origin);
  void fail_counts(const SortedCounts::Finding& finding, std::string_view what);
  bool is_read_from_data(Arg number) const;

  // Rows that ranks gather, scatter and reduce, and that are joined and reshaped
  // (verify_frames_groups.cc).
  Order gathered(NodeId origin);
  Order scattered(NodeId origin);
  Order reduced();
  Order dealt(const Order& rows);
  std::uint64_t group_of_call() const;
  bool takes_one_tensor() const;
  Order regrouped(NodeId origin);
  Order repeated(NodeId origin);
  Order split(NodeId origin);
  bool takes_run_of_rows();
  Order sliced(NodeId origin);
  Order joined(NodeId origin);
  bool joins_unequal_blocks();
  Order reshaped(NodeId origin, NodeId part);
  PolyId outer_extents(NodeId value, const std::vector<bool>& is_divided);
  bool splits_rows(NodeId origin, NodeId part);
  void check_elements(NodeId origin, NodeId part);
  Order fail_regrouped(NodeId origin, NodeId part);

  // Rows that meet (verify_frames_meet.cc): both are in one order, as far as is known.
  void pair(const Operand& x, const Order& a, const Operand& y, const Order& b);
  void fail_pair(const Operand& x, const Order& a, const Operand& y, const Order& b);
  void pair_positions(const Operand& positions, const Order& order);
  bool are_undone(std::span<const std::uint64_t> went, std::span<const std::uint64_t> back);
  void assume_alike_on_ranks();
  void assume_one_order_on_ranks(const Operand& reduced);

  RewriteClaims& claims_;
  RowBlocks& blocks_;
  const Context& context_;
  const Body& a_;
  Facts& facts_a_;
  ValueNumbers numbers_;  // of A
  FrameTerms terms_;
  SortedCounts counts_;
  PositionNames names_;
  KnownOrders orders_;
  RowMeetings meetings_;
  AssumedRows assumed_;
  IdSet<StringId> read_;  // symbols of numbers that calls read from data
  // Of the call that is looked at.
  const PartFacts* facts_ = nullptr;
  const Node* node_ = nullptr;
  NodeId part_;
};

}  // namespace epweave
