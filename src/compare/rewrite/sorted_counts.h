// Whether what sends, cuts or groups rows that were sorted counts these rows: in the whole
// (verify_counts.h), and in each part, which B can cut in another way than what it counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "analysis/effects.h"
#include "analysis/frame_terms.h"
#include "analysis/value_numbers.h"
#include "base/id.h"
#include "compare/rewrite/equal_parts.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/verify_counts.h"

namespace epweave {

struct BothEffects {
  const Effects &of_a, &of_b;
};

class SortedCounts {
 public:
  using Verdict = CountCheck::Verdict;
  using Finding = CountCheck::Finding;

  // All must outlive it. `numbers`: of A.
  SortedCounts(RewriteClaims& claims, const BothEffects& effects, const RowBlocks& blocks,
               const ValueNumbers& numbers, const FrameTerms& terms);

  // Of calls of A on rows in an order: an exchange by sizes, a product of groups that end at
  // `ends`.
  // Reports parts that count other rows than they sorted.
  Finding check_exchange(NodeId exchange, FrameId rows);
  Finding check_groups(NodeId product, NodeId ends, FrameId rows);
  // Whether rows in an order lie in runs of as many as `counts`, of A, says.
  Verdict check_runs(NodeId counts, FrameId rows);

  // The exchange, of A, gives rows in this order.
  void note_exchange(FrameId frame, NodeId exchange);
  // B's values, by what A's are.
  const EqualParts& parts() { return of_b().parts; }

 private:
  // What is asked of B's own values.
  struct OfB {
    OfB(const RewriteClaims& claims, const ValueNumbers& of_a, const Effects& effects,
        const RowBlocks& blocks)
        : parts(claims, of_a, effects, blocks), counts(claims.graph_b(), effects, parts.numbers()) {}
    EqualParts parts;
    CountCheck counts;
  };
  // Calls of the whole, or of one part, that sort rows, and exchange them if they do.
  struct SortedRows {
    NodeId exchange, sort;
  };
  // Of which places pick some.
  struct PlacedRows {
    NodeId places;
    SortedRows of;
  };
  OfB& of_b();
  NodeId sort_behind(FrameId frame) const;
  // None: rows in that order are not sorted, or not in parts.
  std::optional<SortedRows> sorted_rows(FrameId frame) const;
  std::optional<SortedRows> of_part(const SortedRows& rows, std::uint32_t part) const;
  std::optional<PlacedRows> placed_rows(FrameId frame) const;
  bool are_parts_counted(NodeId call, NodeId sort);
  bool are_parts_placed(NodeId call, const PlacedRows& rows);
  Verdict verdict_of(const Finding& finding);
  Verdict verdict_in(NodeId part, const Finding& finding);

  RewriteClaims& claims_;
  const Context& context_;
  const Body& a_;
  const Effects& effects_b_;
  const RowBlocks& blocks_;
  const ValueNumbers& numbers_;
  const FrameTerms& terms_;
  const CountCheck counts_;
  std::optional<OfB> of_b_;               // once it is asked for
  SideTable<FrameId, NodeId> exchanges_;  // the first call of A that gives rows in this order
};

}  // namespace epweave
