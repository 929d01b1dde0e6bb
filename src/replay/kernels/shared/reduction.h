// A tensor as rows: what a reduction adds up, or finds, is a row of a matrix.
#pragma once

#include <vector>

#include "replay/kernels/shared/scratch.h"

namespace epweave::replay::shared {

// Which dimensions go, as torch reads the argument: None or an empty list is all of them.
inline std::vector<bool> reduced_dims(const Value& dims, std::size_t rank) {
  std::vector<bool> reduced(rank, false);
  if (dims.is_none() || (dims.is<List>() && dims.items().empty())) return std::vector<bool>(rank, true);
  for (std::int64_t d : dims.integers())
    if (const std::size_t dim = cpu::checked_dim(d, rank); dim < rank) reduced[dim] = true;
  return reduced;
}

// What is reduced: the dimensions that go, and whether they stay with an extent of 1.
struct Reduction {
  std::vector<bool> dims;
  bool keepdim = false;
};
inline Reduction all_of(const KernelCall& call) {
  return {std::vector<bool>(call.tensor(0).rank(), true), false};
}
inline Reduction some_of(const KernelCall& call) {
  return {reduced_dims(call[1], call.tensor(0).rank()), call.boolean(2)};
}

// The tensor's rows, one for each element of the result: the reduced dimensions lie last.
struct ReducedRows {
  Rows rows;
  Extents sizes;  // of the result
};
inline ReducedRows reduced_rows(Scratch& scratch, const Tensor& self, const Reduction& reduction) {
  Extents sizes, strides, kept;
  std::size_t split = 0;
  for (const bool last : {false, true})
    for (std::size_t d = 0; d < self.rank(); ++d) {
      if (reduction.dims[d] != last) continue;
      sizes.push_back(self.sizes[d]);
      strides.push_back(self.strides[d]);
      split += last ? 0 : 1;
    }
  for (std::size_t d = 0; d < self.rank(); ++d)
    if (!reduction.dims[d] || reduction.keepdim) kept.push_back(reduction.dims[d] ? 1 : self.sizes[d]);
  return {scratch.rows_of(self.view(std::move(sizes), std::move(strides), self.offset), split),
          std::move(kept)};
}

// Result 0 of `dtype`, an element for each row of the tensor: f(x) makes [rows, 1] of rows, which
// it gets in `computed`.
struct RowDTypes {
  DType result, computed;
};
template <class F>
Tensor map_rows_to_one(KernelCall& call, const Reduction& reduction, const RowDTypes& dtypes, const F& f) {
  Scratch scratch(call);
  const ReducedRows in = reduced_rows(scratch, call.tensor(0), reduction);
  const Tensor out = call.make_result(0, dtypes.result, in.sizes);
  const Rows results = scratch.rows_for(out, out.rank());
  scratch.for_each_block(in.rows, {&results}, [&](const Block& block) {
    block.store(f(scratch, block.load(in.rows, dtypes.computed)), results);
  });
  return out;
}

}  // namespace epweave::replay::shared
