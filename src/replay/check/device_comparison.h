// bound_comparison.h and row_matching.h where values lie on a device: the same numbers, by ops of
// its kernels, of which the host reads a few.
#pragma once

#include <cstddef>
#include <vector>

#include "replay/check/bound_comparison.h"

namespace epweave::replay {

// compare_bounded() of values where they lie.
BoundComparison compare_where_they_lie(const BoundedValue& a, const std::vector<BoundedValue>& b,
                                       const TensorOps& ops);
// The same by ops, of values in host memory too.
BoundComparison compare_by_ops(const BoundedValue& a, const std::vector<BoundedValue>& b,
                               const TensorOps& ops);

// match_rows() of values where they lie. On a device rows are matched in the order of their sums,
// as near to their place in it as they are found. What is kept of a pair of rows is a bit, where it
// is kept at all.
BoundComparison match_rows_where_they_lie(const BoundedValue& whole, const std::vector<BoundedValue>& parts,
                                          std::size_t dim, const TensorOps& ops);

// The same by ops, of values in host memory too.
BoundComparison match_rows_by_ops(const BoundedValue& whole, const std::vector<BoundedValue>& parts,
                                  std::size_t dim, const TensorOps& ops);

// In host memory, of the rows of a dimension: the sums of their elements, and how far such a sum
// may be off where each element is within its bound.
struct RowSums {
  std::vector<double> sums, reach;
};
RowSums sum_rows(const BoundedValue& value, std::size_t dim, const TensorOps& ops);

}  // namespace epweave::replay
