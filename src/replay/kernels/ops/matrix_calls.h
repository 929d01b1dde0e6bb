// What products of matrices are called with. For every device: `multiply(a, b, out)` is a device's
// own, of operands that were checked.
#pragma once

#include <string>

#include "replay/kernels/kernel.h"

namespace epweave::replay::cpu {

// Of `rank` dimensions: 2, or 3 with batches in front.
inline void check_matrices(const Tensor& a, const Tensor& b, std::size_t rank) {
  if (a.rank() != rank || b.rank() != rank)
    throw KernelError("a product of tensors with other numbers of dimensions");
  if (a.dtype != b.dtype) throw KernelError("a product of different dtypes");
  if (a.sizes[rank - 1] != b.sizes[rank - 2])
    throw KernelError("a product of inner sizes " + std::to_string(a.sizes[rank - 1]) + " and " +
                      std::to_string(b.sizes[rank - 2]));
}

// [b, m, k] by [b, k, n]: what `op` makes.
inline Extents sizes_of_batches(const Tensor& a, const Tensor& b, const std::string& op) {
  check_matrices(a, b, 3);
  if (a.sizes[0] != b.sizes[0]) throw KernelError(op + ": different batches");
  return {a.sizes[0], a.sizes[1], b.sizes[2]};
}

// [m, k] by [k, n].
template <class Multiply>
Value mm_by(KernelCall& call, const Multiply& multiply) {
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  check_matrices(a, b, 2);
  Tensor out = call.make_result(0, a.dtype, {a.sizes[0], b.sizes[1]});
  multiply(a, b, out);
  return out;
}

// [b, m, k] by [b, k, n] for each b.
template <class Multiply>
Value bmm_by(KernelCall& call, const Multiply& multiply) {
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  Tensor out = call.make_result(0, a.dtype, sizes_of_batches(a, b, "bmm"));
  multiply(a, b, out);
  return out;
}

// [m, k] by [k].
template <class Multiply>
Value mv_by(KernelCall& call, const Multiply& multiply) {
  const Tensor& a = call.tensor(0);
  Tensor b = call.tensor(1);
  b.sizes.push_back(1);
  b.strides.push_back(1);
  check_matrices(a, b, 2);
  Tensor out = call.make_result(0, a.dtype, {a.sizes[0]});
  multiply(a, b, out.view({a.sizes[0], 1}, {out.strides[0], 1}, out.offset));
  return out;
}

// [k] by [k].
template <class Multiply>
Value dot_by(KernelCall& call, const Multiply& multiply) {
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  if (a.rank() != 1 || b.rank() != 1) throw KernelError("dot: two vectors");
  const Tensor row = a.view({1, a.sizes[0]}, {0, a.strides[0]}, a.offset),
               column = b.view({b.sizes[0], 1}, {b.strides[0], 0}, b.offset);
  check_matrices(row, column, 2);
  const Tensor out = call.make_result(0, a.dtype, {});
  multiply(row, column, out.view({1, 1}, {1, 1}, out.offset));
  return out;
}

}  // namespace epweave::replay::cpu
