// Are sums that were regrouped as close as their summands allow? The second half of a check
// (check.h).
//
// Both graphs are run once more with error bounds (error_bounds.h) that start at the regrouped
// sums. A value of A is kept with its bound until B's, or its parts', are made. They agree if for
// each element
//
//   |a - b| <= bound(a) + bound(b)                 one value; a part, against its slice of the whole
//   |a - sum of b_i| <= bound(a) + sum of bound(b_i)   parts of a sum
//
// and, where what they were before rounding is known (ideal_values.h), if those differ by no more
// than kUnroundedShare of that. Parts may have their rows in orders of their own (those of the
// tokens of each expert): then each row must be as close to a row of the whole, another for each.
// Both sides are exact sums of the same numbers but for their bounds, since what they are computed
// from has the same bits in both graphs: that is checked, node by node, by the first half.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "replay/bounds/error_bounds.h"
#include "replay/check/bound_comparison.h"
#include "replay/run/executor.h"
#include "replay/run/watch_values.h"

namespace epweave::replay {

// Which sums are regrouped, and what is computed from them.
struct RegroupedSums {
  IdSet<NodeId> sums, reached;
};
// From the nodes whose values are parts of a sum.
RegroupedSums find_regrouped(const Graph& graph, const IdSet<NodeId>& roots);

// Compares groups of nodes while A and then B run. Groups by their place in the list.
class SumChecker {
 public:
  SumChecker(const std::vector<Group>& groups, Rank ranks);
  // Compares these groups from now on; what was found of others is kept.
  void start(const std::vector<std::size_t>& groups);

  void see_whole(Rank rank, NodeId node, const Tensor& value, const ErrorBounds& bounds);
  void see_value(Rank rank, NodeId node, const Tensor& value, const ErrorBounds& bounds);
  // B's values whose group is not complete are forgotten: their memory may end with the run.
  void end_run(Rank rank);
  // None if a value of the group was not seen.
  std::optional<BoundComparison> result(Rank rank, std::size_t group) const;

 private:
  struct OfRank {
    std::unordered_map<NodeId, BoundedValue> wholes;
    std::unordered_map<std::size_t, std::vector<BoundedValue>> values;  // by group, until all are seen
    std::unordered_map<std::size_t, BoundComparison> results;
  };
  void finish(OfRank& of_rank, std::size_t group, const TensorOps& ops);

  const std::vector<Group>& groups_;
  IdSet<NodeId> wholes_;
  std::unordered_map<NodeId, std::size_t> group_of_;  // of a value of B
  std::vector<OfRank> ranks_;
};

}  // namespace epweave::replay
