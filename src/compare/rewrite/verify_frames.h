// Which row of the whole is row i of a part's value, where the part keeps its rows in an order of its own? Rows that are
// paired, added up in pairs, or written where others were picked must be those of the same tokens.
//
//   %t = sort(%x)          rows in sort(%t); %t[1] numbers rows in the order of the tokens
//   %y = %h[%t[1]]         rows in sort(%t)
//   mul(%y, %w)            wrong where %w's rows are in the order of the tokens, or of another sort
//   index_put(%o, [%t[1]], %y)      the order of the tokens: numbers and rows are in one order, and it is what they number
//   index_put(%o, [arange], %y)     wrong: puts the first sorted row in the place of the first token
//
// An order is a term (analysis/frame_terms.h): of the tokens; made by a sort; picked by numbers; placed; exchanged, and back;
// each row c times. Rows of constants are in any. What is not known (rows picked by numbers that may name one twice, tables
// exchanged by counts that are computed again) is an assumption. Reports rewrite-rows.
#pragma once

#include <string>
#include <vector>

#include "analysis/frame_terms.h"
#include "compare/rewrite/part_facts.h"
#include "compare/rewrite/rewrite_claims.h"

namespace epweave {

class FrameCheck {
 public:
  FrameCheck(RewriteClaims& claims, const Effects& effects_a);

  // The call that `facts` saw last: a node of A with parts, in A's order.
  void add(NodeId origin, NodeId part, const PartFacts& facts);
  // Each node of A, behind that.
  void count_writes_of(NodeId a);

  const std::vector<std::string>& assumptions() const { return assumptions_; }

 private:
  using Operand = PartFacts::Operand;
  struct Order {
    enum class Kind : std::uint8_t { kNoRows, kAny, kKnown, kLost };
    Kind kind = Kind::kNoRows;
    FrameId frame;  // of kKnown
    bool is_known() const { return kind == Kind::kKnown; }
    bool is_lost() const { return kind == Kind::kLost; }
    friend bool operator==(const Order&, const Order&) = default;
  };
  // Of a value: the order that its rows are in, and of numbers that of the rows which they number.
  struct Entry {
    Order rows, numbered;
  };

  Order order_of(const Operand& operand) const;
  Order numbered_by(const Operand& operand) const;
  const Operand* find_operand(std::string_view param) const;
  Arg find_value(std::string_view param) const;
  NodeId value_in_a(const Operand& operand) const;
  Order known(FrameId frame) const { return {Order::Kind::kKnown, frame}; }
  Order lost() const { return {Order::Kind::kLost, {}}; }

  Entry visit(NodeId origin);
  Order common();
  Entry element(NodeId origin) const;
  Order made_by(NodeId call, const Order& rows);
  Order sorted(NodeId call);
  Order picked(const Operand& positions);
  Order put(const Operand& positions);
  Order exchanged();
  Order reshaped(NodeId origin, NodeId part);
  ExprId divided_extent(NodeId a, const std::vector<bool>& is_divided) const;

  // Both are in one order, as far as is known.
  void pair(const Operand& x, const Order& a, const Operand& y, const Order& b, bool must_know);
  std::uint64_t word_of(NodeId positions) const;
  NodeId sort_of(NodeId order) const;
  bool is_permutation(NodeId positions) const;
  bool is_written(NodeId value) const { return written_.contains(effects_.storage_of(value)); }
  std::string name_of(const Operand& operand) const;
  void assume(const Operand& x, const Operand& y);

  RewriteClaims& claims_;
  const Effects& effects_;
  const Context& context_;
  const Body& a_;
  Facts facts_a_;
  ValueNumbers numbers_;
  FrameTerms terms_;
  WriteCounts writes_;
  SideTable<NodeId, std::uint32_t> written_before_;  // writes to a value's storage until it was made
  SideTable<NodeId, Entry> entries_;
  IdSet<NodeId> written_;       // storages
  IdSet<NodeId> permutations_;  // numbers that name each row once
  Order token_order_;
  std::vector<std::string> assumptions_;
  // Of the call that is looked at.
  const PartFacts* facts_ = nullptr;
  const Node* node_ = nullptr;
  NodeId part_;
};

}  // namespace epweave
