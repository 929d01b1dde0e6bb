// Products. Each element is one chain of fused multiply-adds over the reduced index ascending, from
// +0, in float32 for the 16-bit floats, rounded once (product.h). So a row of a product does not
// depend on the other rows, and a product cut along its rows or columns is the same bits.
#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/operands.h"
#include "replay/kernels/host/product.h"
#include "replay/kernels/ops/matrix_calls.h"
#include "replay/kernels/ops/product_rows.h"
#include "replay/kernels/shared/convolution.h"

namespace epweave::replay::cpu {
namespace {

// A two-dimensional tensor's elements in a compute type, in whichever order reads memory in
// sequence.
template <class C>
struct Loaded {
  Buffer<C> elements;
  Matrix<C> matrix;
};
template <class C>
Loaded<C> load_matrix(const Tensor& tensor) {
  const std::int64_t rows = tensor.sizes[0], columns = tensor.sizes[1];
  if (tensor.strides[0] < tensor.strides[1]) {
    Tensor turned = tensor;
    std::swap(turned.sizes[0], turned.sizes[1]);
    std::swap(turned.strides[0], turned.strides[1]);
    Loaded<C> loaded{dense<C>(turned), {}};
    loaded.matrix = Matrix<C>{loaded.elements.data(), rows, columns, 1, rows};
    return loaded;
  }
  Loaded<C> loaded{dense<C>(tensor), {}};
  loaded.matrix = Matrix<C>{loaded.elements.data(), rows, columns, columns, 1};
  return loaded;
}

template <class F>
decltype(auto) with_product_type(DType dtype, const F& f) {
  if (compute_of(dtype) == Compute::kInt) return f(TypeTag<std::int64_t>{});
  return with_floating(dtype, f);
}

template <class S>
Matrix<S> matrix_of(const Tensor& tensor) {
  return {reinterpret_cast<const S*>(tensor.bytes()), tensor.sizes[0], tensor.sizes[1], tensor.strides[0],
          tensor.strides[1]};
}
// The same without copies, where the operands and the rows of the result are what the product reads
// and writes.
template <class S>
bool multiply_in_place(const Tensor& a, const Tensor& b, const Tensor& out) {
  if (out.sizes[1] != 1 && out.strides[1] != 1) return false;
  if (out.dtype == DType::kFloat32)
    multiply(matrix_of<S>(a), matrix_of<S>(b), out.data<float>(), out.strides[0]);
  else if (out.dtype == DType::kBfloat16)
    multiply(matrix_of<S>(a), matrix_of<S>(b), reinterpret_cast<Bfloat16*>(out.bytes()), out.strides[0]);
  else
    return false;
  return true;
}

// out = a b, two-dimensional.
void multiply_into(const Tensor& a, const Tensor& b, const Tensor& out) {
  if (a.dtype == DType::kFloat32 && multiply_in_place<float>(a, b, out)) return;
  if (a.dtype == DType::kBfloat16 && multiply_in_place<Bfloat16>(a, b, out)) return;
  with_product_type(a.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const Loaded<C> left = load_matrix<C>(a), right = load_matrix<C>(b);
    Buffer<C> c(static_cast<std::size_t>(out.numel()));
    multiply(left.matrix, right.matrix, c.data(), out.sizes[1]);
    store_dense(c, out);
  });
}

// Index `i` of the first dimension.
Tensor slab(const Tensor& tensor, std::int64_t i) {
  Tensor part = tensor;
  part.offset += i * part.strides[0];
  part.sizes.erase(part.sizes.begin());
  part.strides.erase(part.strides.begin());
  return part;
}
Tensor range(const Tensor& tensor, std::size_t dim, std::int64_t first, std::int64_t count) {
  Tensor part = tensor;
  part.offset += count == 0 ? 0 : first * part.strides[dim];
  part.sizes[dim] = count;
  return part;
}

Value mm(KernelCall& call) {
  return mm_by(call, multiply_into);
}

void multiply_batches(const Tensor& a, const Tensor& b, const Tensor& out) {
  for (std::int64_t i = 0; i < a.sizes[0]; ++i) multiply_into(slab(a, i), slab(b, i), slab(out, i));
}
Value bmm(KernelCall& call) {
  return bmm_by(call, multiply_batches);
}

Value mv(KernelCall& call) {
  return mv_by(call, multiply_into);
}
Value dot(KernelCall& call) {
  return dot_by(call, multiply_into);
}

// beta * self + alpha * product: the product is finished first, then fused: fma(alpha, product,
// beta * self).
template <class Multiply>
Value add_product(KernelCall& call, const Extents& sizes, const Multiply& multiply_to) {
  Tensor out = call.make_result(0, call.tensor(1).dtype, sizes);
  with_floating(out.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const Tensor product =
        call.make(std::is_same_v<C, double> ? DType::kFloat64 : DType::kFloat32, out.sizes);
    multiply_to(call.tensor(1), call.tensor(2), product);
    const C beta = number_as<C>(call[3]), alpha = number_as<C>(call[4]);
    map_elements<C, C, 2>(out, {&product, &call.tensor(0)},
                          [&](C p, C s) { return beta == C(0) ? alpha * p : math::fma(alpha, p, beta * s); });
  });
  return out;
}

Value addmm(KernelCall& call) {
  const Tensor &a = call.tensor(1), &b = call.tensor(2);
  check_matrices(a, b, 2);
  return add_product(call, {a.sizes[0], b.sizes[1]}, multiply_into);
}

Value baddbmm(KernelCall& call) {
  return add_product(call, sizes_of_batches(call.tensor(1), call.tensor(2), "baddbmm"), multiply_batches);
}

// The group bounds of a grouped product: cumulative, ascending, within [0, limit].
Buffer<std::int64_t> read_offsets(KernelCall& call, std::int64_t limit) {
  if (call[2].is_none()) throw KernelError("_grouped_mm: this layout needs offs");
  const Buffer<std::int64_t> ends = dense<std::int64_t>(call.tensor(2));
  std::int64_t last = 0;
  for (std::int64_t end : ends) {
    if (end < last || end > limit)
      throw KernelError("_grouped_mm: offs must ascend within the dimension of " + std::to_string(limit) +
                        ", found " + std::to_string(end) + " after " + std::to_string(last));
    last = end;
  }
  return ends;
}

// Four layouts, by the ranks of the operands. What lies behind the last offset is 0.
//   2d x 3d   rows of a in groups            (M, K) x (G, K, N) -> (M, N)
//   3d x 2d   columns of b in groups         (G, M, K) x (K, N) -> (M, N)
//   2d x 2d   the reduced index in groups    (M, K) x (K, N)    -> (G, M, N)
//   3d x 3d   one product per group          (G, M, K) x (G, K, N) -> (G, M, N)
Value grouped_mm(KernelCall& call) {
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  if (!call[3].is_none()) throw KernelError("_grouped_mm: bias is not supported");
  if (a.rank() < 2 || a.rank() > 3 || b.rank() < 2 || b.rank() > 3)
    throw KernelError("_grouped_mm: two or three dimensions");
  if (a.dtype != b.dtype) throw KernelError("_grouped_mm: different dtypes");
  const std::int64_t depth = a.sizes.back(), rows = a.sizes[a.rank() - 2], columns = b.sizes.back();
  if (b.sizes[b.rank() - 2] != depth) throw KernelError("_grouped_mm: inner sizes differ");
  const DType dtype = call[4].is<DType>() ? call[4].as<DType>() : a.dtype;
  const auto zeroed = [&](Extents sizes) {
    Tensor out = call.make_result(0, dtype, std::move(sizes));
    fill_elements(out, Value(std::int64_t{0}));
    return out;
  };
  const auto check_groups = [&](std::size_t groups, std::int64_t batch) {
    if (static_cast<std::int64_t>(groups) != batch) throw KernelError("_grouped_mm: as many offs as groups");
  };
  if (a.rank() == 3 && b.rank() == 3) {
    check_groups(static_cast<std::size_t>(a.sizes[0]), b.sizes[0]);
    Tensor out = zeroed({a.sizes[0], rows, columns});
    for (std::int64_t g = 0; g < a.sizes[0]; ++g) multiply_into(slab(a, g), slab(b, g), slab(out, g));
    return out;
  }
  std::int64_t first = 0;
  std::int64_t group = 0;
  if (a.rank() == 2 && b.rank() == 3) {
    const Buffer<std::int64_t> ends = read_offsets(call, rows);
    check_groups(ends.size(), b.sizes[0]);
    Tensor out = zeroed({rows, columns});
    for (std::int64_t end : ends) {
      if (end > first)
        multiply_into(range(a, 0, first, end - first), slab(b, group), range(out, 0, first, end - first));
      first = end;
      ++group;
    }
    return out;
  }
  if (a.rank() == 3) {
    const Buffer<std::int64_t> ends = read_offsets(call, columns);
    check_groups(ends.size(), a.sizes[0]);
    Tensor out = zeroed({rows, columns});
    for (std::int64_t end : ends) {
      if (end > first)
        multiply_into(slab(a, group), range(b, 1, first, end - first), range(out, 1, first, end - first));
      first = end;
      ++group;
    }
    return out;
  }
  const Buffer<std::int64_t> ends = read_offsets(call, depth);
  Tensor out = zeroed({static_cast<std::int64_t>(ends.size()), rows, columns});
  for (std::int64_t end : ends) {
    if (end > first)
      multiply_into(range(a, 1, first, end - first), range(b, 0, first, end - first), slab(out, group));
    first = end;
    ++group;
  }
  return out;
}

Value convolution(KernelCall& call) {
  return shared::convolution(call, multiply_batches);
}
Value convolution_backward(KernelCall& call) {
  return shared::convolution_backward(call, multiply_batches);
}

constexpr auto kRows = product_rows({.mm = mm,
                                     .addmm = addmm,
                                     .bmm = bmm,
                                     .baddbmm = baddbmm,
                                     .mv = mv,
                                     .dot = dot,
                                     .grouped_mm = grouped_mm,
                                     .convolution = convolution,
                                     .convolution_backward = convolution_backward});

}  // namespace

std::span<const KernelRow> matmul_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
