// Which row of the whole is row i of a part's value, where the part keeps its rows in an order of
// its own? Rows that are paired, added up in pairs, or written where others were picked must be
// those of the same tokens.
//
//   %t = sort(%x)          rows in sort(%t); %t[1] numbers rows in the order of the tokens
//   %y = %h[%t[1]]         rows in sort(%t)
//   mul(%y, %w)            wrong where %w's rows are in the order of the tokens, or of another sort
//   index_put(%o, [%t[1]], %y)      the order of the tokens: that is what the numbers number, and
//                                   they are in the order of the rows
//   index_put(%o, [arange], %y)     wrong: puts the first sorted row in the first token's place
//
// An order is a term (analysis/frame_terms.h): of the tokens, of which a part has some of so many
// blocks (verify_orders.h); made by a sort; picked by numbers; placed; exchanged, and back;
// gathered; each row c times; joined. Rows of constants are in any. Equal calls of A make one order
// where their parts in B are equal, too (equal_parts.h).
// 0, 1, .. are in the order of the rows that they pick; moved, they permute a part's own.
// Rows that are repeated by counts lie in runs (repeat_interleave): they may meet sorted or
// received rows of which the counts are (verify_counts.h), and are in the order of these from there
// on.
// Each value with rows has an order: where nothing is known of it (rows picked by numbers that may
// name one twice, rows of a split, storage that was written otherwise), one that only the same
// value has. Where rows of such a one meet others, or are added up, that is an assumption; so are
// tables exchanged by counts that are computed again. Split sizes and ends of groups must count
// what the rows that they cut were sorted by (verify_counts.h); where that is not known, it is an
// assumption. Reports rewrite-rows.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/frame_terms.h"
#include "compare/rewrite/equal_parts.h"
#include "compare/rewrite/part_facts.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/verify_counts.h"

namespace epweave {

class FrameCheck {
 public:
  struct BothEffects {
    const Effects &of_a, &of_b;
  };
  FrameCheck(RewriteClaims& claims, const BothEffects& effects, const OrderCheck& orders);

  // The call that `facts` saw last: a node of A with parts, in A's order.
  void add(NodeId origin, NodeId part, const PartFacts& facts);
  // Each node of A, behind that.
  void note_writes_of(NodeId a);

  const std::vector<std::string>& assumptions() const { return assumptions_; }

 private:
  using Operand = PartFacts::Operand;
  struct Order {
    // kCounted: of 0, 1, .., which are in whatever order the rows are that they pick
    enum class Kind : std::uint8_t { kNoRows, kAny, kCounted, kKnown };
    Kind kind = Kind::kNoRows;  // also of what numbers no rows
    FrameId frame;              // of kKnown
    bool is_known() const { return kind == Kind::kKnown; }
    bool is_counted() const { return kind == Kind::kCounted; }
    friend bool operator==(const Order&, const Order&) = default;
  };
  // Of the rows of two views of one storage, row i of each begins where the other's does if stride
  // and count are equal: as many elements behind the row before. They are the same elements if all
  // is.
  struct Row {
    std::optional<std::int64_t> stride;  // none: its rows do not lie one behind another
    PolyId count;
    std::int64_t first = 0;  // element of the storage
    // Size and stride of each dimension of a row, but for those of size 1.
    std::vector<std::pair<std::int64_t, std::int64_t>> dims;
    DType dtype{};
    bool begins_with(const Row& other) const { return stride == other.stride && count == other.count; }
    friend bool operator==(const Row&, const Row&) = default;
  };
  struct View {
    NodeId value;  // of A
    Row row;
  };
  // What is asked of B's own values.
  struct OfB {
    OfB(const RewriteClaims& claims, const ValueNumbers& of_a, const Effects& effects,
        const OrderCheck& orders)
        : parts(claims, of_a, effects, orders), counts(claims.graph_b(), effects, parts.numbers()) {}
    EqualParts parts;
    CountCheck counts;
  };
  // Of a value: the order that its rows are in, and of numbers that of the rows which they number.
  struct Entry {
    Order rows, numbered;
  };

  Order order_of(const Operand& operand);
  Order numbered_by(const Operand& operand);
  NodeId value_in_a(const Operand& operand) const;
  Order known(FrameId frame) const { return {Order::Kind::kKnown, frame}; }
  // What only this value has, made of rows in a known order, or of none.
  Order unknown(NodeId value, FrameId base = {});
  Order in_blocks(NodeId origin, const Order& rows);
  // The order of the tokens, in so many blocks; 0: not known.
  Order tokens_in(std::int64_t blocks);
  Order tokens_of(NodeId share);
  bool is_tokens(const Order& order) const {
    return order.is_known() && terms_[order.frame].kind == FrameTerms::kTokenOrder;
  }
  bool is_unknown(const Order& order) const { return order.is_known() && terms_.is_unknown(order.frame); }

  Entry visit(NodeId origin);
  Entry counted(NodeId origin) const;
  Order rows_of_result(NodeId origin, Entry& entry);
  Order common();
  Entry element(NodeId origin);
  Order sorted_order(NodeId sort, NodeId made);
  Order in_runs(const Operand& counts);
  Order made_by(NodeId call, const Order& rows);
  Order sorted(NodeId call);
  void require_tokens_numbered();
  Order order_among(const Order& rows, const Operand& positions);
  Order picked(const Operand& positions);
  Order put(NodeId origin, const Operand& positions);
  Order exchanged(NodeId origin);
  void check_counts(NodeId origin, const Order& rows);
  void check_groups(NodeId origin);
  bool are_parts_counted(NodeId call, NodeId sort);
  // Calls of the whole, or of one part, that sort rows, and exchange them if they do.
  struct SortedRows {
    NodeId exchange, sort;
  };
  // None: rows in that order are not sorted, or not in parts.
  std::optional<SortedRows> sorted_rows(FrameId frame) const;
  std::optional<SortedRows> of_part(const SortedRows& rows, std::uint32_t part) const;
  // Of which places pick some.
  struct PlacedRows {
    NodeId places;
    SortedRows of;
  };
  std::optional<PlacedRows> placed_rows(const Order& rows) const;
  bool are_parts_placed(NodeId call, const PlacedRows& rows);
  CountCheck::Verdict verdict_in(NodeId part, const CountCheck::Finding& finding);
  OfB& of_b();
  CountCheck::Verdict verdict_of(const CountCheck::Finding& finding);
  NodeId sort_behind(const Order& rows) const;
  void fail_counts(const CountCheck::Finding& finding, std::string_view what);
  bool is_read_from_data(Arg number) const;
  Order gathered(NodeId origin);
  Order scattered(NodeId origin);
  Order reduced();
  Order dealt(const Order& rows);
  std::uint64_t group_of_call() const;
  bool takes_one_tensor() const;
  Order joined(NodeId origin);
  Order reshaped(NodeId origin, NodeId part);
  PolyId outer_extents(NodeId value, const std::vector<bool>& is_divided);
  bool splits_rows(NodeId origin, NodeId part);
  Order fail_regrouped(NodeId origin, NodeId part);
  bool is_mask(const Operand& positions) const;
  // The dimension is one of those along which the operand is divided.
  static bool is_along(const Operand& operand, std::int64_t dim);
  bool has_as_many_rows(const Operand& source, NodeId origin) const;
  void note_write(NodeId origin, const Entry& made, const Order& before);
  Row row_of(NodeId value, const std::vector<bool>& is_divided) const;
  const Operand* written_operand() const;
  ExprId divided_extent(NodeId a, const std::vector<bool>& is_divided) const;

  // Whether rows in two orders can meet. One that lies in runs is in the other's from there on.
  enum class Meeting : std::uint8_t { kRight, kUnknown, kWrong };
  Meeting meet(FrameId a, FrameId b);
  Meeting meet_runs(FrameId runs, FrameId rows);
  std::optional<Meeting> meet_alike(FrameId a, FrameId b);
  Meeting meet_others(FrameId a, FrameId b);
  Meeting meet_parts(std::uint64_t a, std::uint64_t b);
  bool are_undone(std::span<const std::uint64_t> went, std::span<const std::uint64_t> back);
  Meeting meet_joined(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b);
  Meeting find_runs(NodeId counts, FrameId rows);
  Order settled(const Order& order);
  FrameId settle(FrameId frame);
  // Both are in one order, as far as is known.
  void pair(const Operand& x, const Order& a, const Operand& y, const Order& b);
  void pair_tokens(const Operand& x, const Order& a, const Operand& y, const Order& b);
  void pair_positions(const Operand& positions, const Order& order);
  NodeId first_equal(NodeId value);
  std::uint64_t word_of_value(NodeId value);
  std::uint64_t word_of(NodeId positions);
  NodeId sort_of(NodeId order) const;
  bool is_permutation(NodeId positions, NodeId of, std::size_t dim) const;
  bool numbers_each_row(NodeId positions, NodeId of, std::size_t dim) const;
  bool is_written(NodeId value) const { return effects_.is_written(effects_.storage_of(value)); }
  std::string name_of(const Operand& operand) const;
  void assume(const Operand& x, const Order& a, const Operand& y, const Order& b);
  void assume_all_rows(const Operand& summed);
  void assume_alike_on_ranks();
  void assume_one_order_on_ranks(const Operand& reduced);

  RewriteClaims& claims_;
  const Effects& effects_;
  const OrderCheck& orders_;
  const Context& context_;
  const Body& a_;
  Facts& facts_a_;
  ValueNumbers numbers_;
  const Effects& effects_b_;
  CountCheck counts_;
  std::optional<OfB> of_b_;  // once it is asked for
  // By the number of values of A, and the numbers of their parts in B.
  std::map<std::vector<NodeId>, NodeId> first_equal_;
  FrameTerms terms_;
  StorageContents contents_;
  SideTable<NodeId, std::uint32_t> content_when_made_;  // of a value's storage
  SideTable<NodeId, Entry> entries_;
  SideTable<NodeId, std::vector<View>> views_;  // by storage
  IdSet<StringId> read_;                        // symbols of numbers that calls read from data
  IdSet<NodeId> permutations_;                  // numbers that name each row once
  Order token_order_;
  std::set<std::pair<FrameId, FrameId>> assumed_;  // an assumption is printed once
  IdSet<NodeId> alike_;                            // of A, assumed to be the same on all ranks
  bool assumes_groups_ = false;                    // that they count the rows of each expert
  IdSet<FrameId> one_order_;                       // assumed to be in one order on all ranks
  SideTable<FrameId, NodeId> exchanges_;           // the first call of A that gives rows in this order
  std::vector<std::string> assumptions_;
  // Of the call that is looked at.
  const PartFacts* facts_ = nullptr;
  const Node* node_ = nullptr;
  NodeId part_;
  std::vector<NodeId> written_views_;  // of A, of what is written in place and is the call's result
  bool keeps_order_ = false;
  // Orders of runs, and of the rows that they met.
  std::vector<std::pair<FrameId, FrameId>> met_;
};

}  // namespace epweave
