// What values that number rows are called in terms of orders (analysis/frame_terms.h), and whether
// they name each row once (verify_frames.h). All values are A's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "analysis/effects.h"
#include "analysis/value_numbers.h"
#include "base/id.h"
#include "compare/rewrite/rewrite_claims.h"
#include "compare/rewrite/sorted_counts.h"
#include "ir/facts.h"

namespace epweave {

class PositionNames {
 public:
  // All must outlive it. `numbers`, `effects`: of A.
  PositionNames(const RewriteClaims& claims, const Effects& effects, const ValueNumbers& numbers,
                SortedCounts& counts);

  std::uint64_t of_value(NodeId value);
  // An order by its sort, else a value.
  std::uint64_t of_positions(NodeId positions);
  // The sort whose order a value is.
  NodeId sort_of(NodeId order) const;
  // Whether each row of a value is named once along a dimension.
  bool is_permutation(NodeId positions, NodeId of, std::size_t dim) const;

 private:
  // By what its numbers are, also once more divided by 1; none where they may be written.
  NodeId as_made(NodeId numbers) const;
  bool is_written(NodeId value) const { return effects_.is_written(effects_.storage_of(value)); }
  bool numbers_each_row(NodeId positions, NodeId of, std::size_t dim) const;
  NodeId first_equal(NodeId value);

  const RewriteClaims& claims_;
  const Context& context_;
  const Body& a_;
  const Effects& effects_;
  const ValueNumbers& numbers_;
  SortedCounts& counts_;
  IdSet<NodeId> permutations_;  // numbers that name each row once
  // By the number of values of A, and the numbers of their parts in B.
  std::map<std::vector<NodeId>, NodeId> first_equal_;
};

}  // namespace epweave
