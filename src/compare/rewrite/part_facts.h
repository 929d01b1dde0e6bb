// What the parts of a value are of the whole, and so what gives the whole back.
//
//   rows     part k has rows of its own of the value       cat
//   share    the parts add up to the value                 add, or adding in place part by part
//   same     each part has all of the value                nothing: it is no summand
//   zero     the same, all zeros, which is also a share
//   numbers  of rows, which a part counts from its own first one         nothing
//   places   among rows in an order of the part's own      nothing
//   entries  of a share, picked for each row                nothing, or cat with `contract=own-sums`
//   statistics  of attention, of another number of rows than its queries: padded      nothing
//   own      none of these: what is not linear made of a part's own sum, what is computed of
//            numbers of its own rows
//
//   %h_k  rows      mm(%x_k, %w)
//   %s_k  share     sum(%h_k, [0])                         the divided dimension is summed
//   %t_k  share     mul(%s_k, 2)                           linear in %s_k
//   %r_k  own       relu(%s_k)                             not linear: relu(a) + relu(b) is not relu(a + b)
//   %o_k  same      new_ones(%h_k, [8])                    reads no element
//   %i_k  numbers   sort(%t_k)[1]                          of the rows of %t_k; floor_divide(%i_k, 3): of thirds of them
//   %p_k  places    %i_k + %s_k[%e_k]                      numbers and entries
//   %g_k  rows      index(%h_k, [%i_k])                    numbers pick rows that they number, and no others
//
// Found by one walk over the nodes of A that have parts, from the facts of what a part takes, by
// the op's family and linearity. Whether the result is divided is read off the recorded types.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "analysis/effects.h"
#include "base/few_table.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/row_blocks.h"
#include "ir/facts.h"
#include "ops/op.h"

namespace epweave {

enum class PartFact : std::uint8_t {
  kRows,
  kShare,
  kSame,
  kZero,
  kNumbers,
  kPlaces,
  kEntries,
  kStatistics,
  kOwn
};
// Rows of the whole, or what stands for them.
inline bool is_data(PartFact fact) {
  return fact == PartFact::kRows || fact == PartFact::kSame || fact == PartFact::kZero;
}

// What a part takes for an argument of its call.
struct PartOperand {
  enum class How : std::uint8_t { kWhole, kPart, kPrevious };
  std::size_t param = 0;
  How how = How::kWhole;
  Arg value;  // of B
  bool is_written = false;
  std::size_t item = 0;  // of a list
};

class PartFacts {
 public:
  // Of the call that was last added.
  struct Operand {
    const PartOperand* taken;
    PartFact fact;
    bool is_tensor = false;
    std::vector<bool> is_divided;  // by dimension
    std::uint32_t numbered = 0;
    bool is_rows() const;
  };

  PartFacts(const RewriteClaims& claims, Numbers& numbers, const Effects& effects_a, const RowBlocks& blocks);

  // In A's order: `part` is one of the parts of `origin`, the operands are those of its call.
  void add(NodeId origin, NodeId part, std::span<const PartOperand> operands);
  PartFact operator[](NodeId origin) const { return facts_[origin].full; }
  // Whether all parts write the same storage and do not each add their share of the whole to it.
  bool spoils_shared(NodeId origin) const { return facts_[origin].spoils_shared; }
  // Whether parts write what is not rows of the whole into pieces of a value that B has whole.
  bool spoils_whole(NodeId origin) const { return facts_[origin].spoils_whole; }
  // Whether parts may be put together.
  bool may_join(NodeId origin) const { return !is_own(facts_[origin].full); }

  // Whether a fact was taken for granted because B's log says contract=own-sums.
  bool rests_on_own_sums() const { return rests_on_own_sums_; }

  std::span<const Operand> operands() const { return operands_; }
  // By dimension, of a value with parts.
  std::vector<bool> divided_dimensions(NodeId origin, NodeId part) const;
  // In which dimension of its first operand the call picks, or places, what this operand numbers;
  // none: it numbers nothing.
  std::optional<std::size_t> picked_dimension(const Operand& operand) const;
  bool sorts_rows() const;

 private:
  // Of a tuple, of its elements that are as large as in the whole, and of those that are divided.
  struct Entry {
    PartFact full = PartFact::kOwn, rows = PartFact::kOwn;
    bool numbers_rows = false;  // the second element numbers the part's own rows
    bool spoils_shared = false, spoils_whole = false;
    std::uint32_t numbered = 0;  // of numbers: which rows
    NodeId statistics;           // of statistics: the element of what attention gives that they are
  };
  // What numbers count: an extent of A, and of each part; empty: not known.
  struct NumberedRows {
    ExprId whole;
    std::vector<ExprId> of_parts;
    friend bool operator==(const NumberedRows&, const NumberedRows&) = default;
  };

  bool is_own(PartFact fact) const;
  bool is_divided(NodeId origin, NodeId part) const;
  Operand describe(const PartOperand& taken) const;
  bool is_zero(NodeId value) const;
  bool adds_up(NodeId origin) const;
  template <class NumberOf>
  bool parts_add_up(NodeId origin, ExprId whole, const NumberOf& number_of) const;
  bool has_rows_of_rows() const;
  bool is_extent_of_rows(const Operand& operand) const;
  bool extents_add_up(NodeId origin, NodeId part) const;
  bool has_no_elements(NodeId origin) const;
  void write_through(NodeId storage, PartFact fact);
  void write_beside(NodeId origin, PartFact fact);

  PartFact find_number(NodeId origin, NodeId part);
  PartFact find_tensor(NodeId origin, NodeId part);
  PartFact find_full(NodeId origin) const;
  PartFact find_rows(NodeId origin, NodeId part);
  PartFact find_linear(NodeId origin, bool is_tensor) const;
  PartFact find_element(NodeId origin, NodeId part);
  bool adds_rows(const Node& node) const;
  bool scales_by_finite(const Node& node) const;
  bool reduces_by_sum(const Node& node) const;
  bool converts_shares(NodeId origin) const;
  bool is_offset_param(std::size_t param) const;
  bool is_added(const Operand& operand) const;
  bool may_take_own_sums() const;
  bool is_position(std::size_t param) const;
  bool selects_elements() const;
  std::string_view name_of_param(std::size_t param) const;
  bool attends_rows() const;
  NodeId taken_by(NodeId call, std::string_view name) const;
  NodeId queries_of(NodeId statistics) const;
  bool is_padded_statistic(NodeId origin, NodeId attention) const;
  bool has_cut_of(NodeId value, NodeId queries) const;
  bool are_cut_alike(NodeId queries, NodeId others) const;
  bool is_statistic(const Operand& operand) const;
  bool has_statistics_of_rows(NodeId origin) const;
  bool counts_rows(PartFact fact) const;

  // Numbers of rows (part_numbers.cc).
  PartFact number_rows(NodeId origin, std::size_t dim);
  PartFact number_chosen_rows(const Operand& chosen);
  std::optional<PartFact> find_numbers(NodeId origin, NodeId part);
  PartFact find_iota(NodeId origin, NodeId part);
  bool undoes_order(NodeId origin, NodeId part) const;
  PartFact find_places() const;
  PartFact find_quotient(NodeId origin);
  std::optional<NumberedRows> divide_rows(std::uint32_t numbered, Arg divisor, std::int64_t blocks);
  bool moves_elements(NodeId origin) const;
  bool picks_entries() const;
  bool may_hold_places(NodeId value) const;
  bool picks_own_rows();
  bool picks_for_all_rows(const Operand& positions) const;

  bool adds_number(const Node& node) const;
  bool is_added_number(const Operand& operand) const;
  PartFact fact_of_added(const Operand& number) const;

  const RewriteClaims& claims_;
  Numbers& numbers_;
  const Effects& effects_;
  const RowBlocks& blocks_;
  Context& context_;
  const Body& a_;
  const Body& b_;
  bool has_own_sums_ = false;  // B's log promises that a part's own sum is meant
  mutable bool rests_on_own_sums_ = false;
  IdVector<NodeId, Entry> facts_;
  FewTable<NodeId, std::vector<NodeId>> views_;  // by storage of A: values with parts, in order
  // Of the call that is looked at.
  const OpInfo* op_ = nullptr;
  const Node* node_ = nullptr;
  std::vector<Operand> operands_;
  std::uint32_t numbered_ = 0;  // by its result
  std::vector<NumberedRows> numbered_rows_ = {{}};
  Facts& facts_a_;
};

}  // namespace epweave
