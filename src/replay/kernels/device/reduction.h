// A tensor as rows: what a reduction adds up, or finds, is a row of a matrix.
#pragma once

#include "replay/kernels/device/scratch.h"
#include "replay/kernels/ops/rows.h"

namespace epweave::replay::device {

using cpu::reduced_dims;

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

// The argument as a row-major matrix of `dtype`, a row per result.
struct Rows {
  Tensor matrix;
  Extents sizes;  // of the result
};
inline Rows rows_of(Scratch& scratch, const Tensor& self, const Reduction& reduction, DType dtype) {
  const cpu::Rows rows = cpu::rows_of(self, reduction.dims, reduction.keepdim);
  return {as_matrix(scratch.dense(rows.tensor, dtype), rows.count, rows.length), rows.sizes};
}

// The largest or smallest of each row, and where; or whether all or any elements are true.
struct Found {
  Rows rows;
  Tensor values, positions;  // computed dtype, int64; by row
};
Found find_in_rows(Scratch& scratch, const Tensor& self, const Reduction& reduction, RowOp op);

}  // namespace epweave::replay::device
