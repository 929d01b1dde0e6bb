// A tensor as rows: the dimensions that a reduction takes away lie last.
#pragma once

#include <vector>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::cpu {

// Which dimensions go, as torch reads the argument: None or an empty list is all of them.
inline std::vector<bool> reduced_dims(const Value& dims, std::size_t rank) {
  std::vector<bool> reduced(rank, false);
  if (dims.is_none() || (dims.is<List>() && dims.items().empty())) return std::vector<bool>(rank, true);
  for (std::int64_t d : dims.integers())
    if (const std::size_t dim = checked_dim(d, rank); dim < rank) reduced[dim] = true;
  return reduced;
}

// The tensor with the reduced dimensions last, and what is left of its shape.
struct Rows {
  Tensor tensor;            // kept dimensions, then reduced ones
  Extents sizes;            // of the result
  std::int64_t count = 1;   // rows
  std::int64_t length = 1;  // elements of each
};
inline Rows rows_of(const Tensor& self, const std::vector<bool>& reduced, bool keepdim) {
  Rows rows;
  Extents sizes, strides;
  for (const bool last : {false, true})
    for (std::size_t d = 0; d < self.rank(); ++d) {
      if (reduced[d] != last) continue;
      sizes.push_back(self.sizes[d]);
      strides.push_back(self.strides[d]);
      (last ? rows.length : rows.count) *= self.sizes[d];
    }
  for (std::size_t d = 0; d < self.rank(); ++d) {
    if (!reduced[d])
      rows.sizes.push_back(self.sizes[d]);
    else if (keepdim)
      rows.sizes.push_back(1);
  }
  rows.tensor = self.view(std::move(sizes), std::move(strides), self.offset);
  return rows;
}

// out[row] = reduce(elements of the row, their number).
template <class C, class R, class Reduce>
Tensor reduce_rows(KernelCall& call, const Rows& rows, DType dtype, const Reduce& reduce) {
  const Buffer<C> elements = dense<C>(rows.tensor);
  Buffer<R> results(static_cast<std::size_t>(rows.count));
  for (std::int64_t i = 0; i < rows.count; ++i)
    results[static_cast<std::size_t>(i)] = reduce(elements.data() + i * rows.length, rows.length);
  Tensor out = call.make_result(0, dtype, rows.sizes);
  store_dense(results, out);
  return out;
}

// The rows along one dimension; of a tensor without dimensions its element.
inline Rows rows_along(const Tensor& self, std::int64_t dim) {
  std::vector<bool> last(self.rank(), false);
  if (const std::size_t at = checked_dim(dim, self.rank()); at < self.rank()) last[at] = true;
  return rows_of(self, last, false);
}

}  // namespace epweave::replay::cpu
