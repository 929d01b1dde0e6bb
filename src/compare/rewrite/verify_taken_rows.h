// Values that B takes from a part of what A takes them from all of.
//
//   A   %s = split_with_sizes(%x, [n, n, n, n], 0); %p = getitem(%s, 2)     rows 2n .. 3n of %x
//   B   %s1 = split_with_sizes(%x_1, [n, n], 0);    %p = getitem(%s1, 0)    rows 0 .. n of part 1, which begins at 2n
//
// The part is part k of %x by its claim, or an operand of the concatenation that A makes %x of.
// Parts are rows along one dimension, in the order of the tokens; both graphs show the same of
// them; and nothing writes the part or %x behind where they are computed. Reports rewrite-rows.
#pragma once

#include <string>
#include <vector>

#include "analysis/aliases.h"
#include "analysis/shown_rows.h"
#include "compare/rewrite/part_facts.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/row_blocks.h"
#include "compare/rewrite/verify_joins.h"

namespace epweave {

class TakenRowsCheck {
 public:
  // All outlive the check.
  TakenRowsCheck(RewriteClaims& claims, Numbers& numbers, const LaterWrites& in_a, const LaterWrites& in_b);

  // Whether a node of B that claims to be all of one of A shows rows of a part where that shows
  // rows of the whole: then this proves it, or reports why not, in place of its call.
  bool check(NodeId id, JoinCheck& joins);
  // When all facts are known: the parts are rows, in the order of the tokens.
  void check_facts(const PartFacts& facts, RowBlocks& blocks);

 private:
  struct Rows {
    ShownRows in_a, in_b;
  };
  std::optional<Rows> find_rows(NodeId id);
  // Where what B takes them of begins in what A takes them of, as a number of A plus one of B.
  struct Begin {
    ExprId of_a, of_b;
  };
  // None: it is no part of that.
  std::optional<Begin> find_begin(const Rows& rows, JoinCheck& joins);
  std::optional<Begin> find_begin_of_part(const Rows& rows, JoinCheck& joins);
  std::optional<Begin> find_begin_in_cat(const Rows& rows);
  bool begins_right(const Rows& rows, const Begin& begin);
  bool has_checked_numbers(NodeId id) const;
  bool is_part(const Rows& rows) const;
  std::string find_fault(const Rows& rows, JoinCheck& joins);

  RewriteClaims& claims_;
  Numbers& numbers_;
  Context& context_;
  const LaterWrites &later_in_a_, &later_in_b_;
  ShownRowsFinder rows_of_a_, rows_of_b_;
  std::vector<NodeId> taken_;  // nodes of B that show rows of parts
};

}  // namespace epweave
