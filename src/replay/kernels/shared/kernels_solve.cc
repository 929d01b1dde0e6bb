// Solutions of triangular systems.
#include "replay/kernels/host/broadcast.h"
#include "replay/kernels/shared/kernels.h"
#include "replay/kernels/shared/scratch.h"

namespace epweave::replay::shared {
namespace {

Tensor transposed(const Tensor& matrix) {
  Extents sizes = matrix.sizes, strides = matrix.strides;
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
  return matrix.view(std::move(sizes), std::move(strides), matrix.offset);
}

// The matrices broadcast to the dimensions `front`.
Tensor spread(const Tensor& matrices, Extents front) {
  front.insert(front.end(), matrices.sizes.end() - 2, matrices.sizes.end());
  Extents strides(front.size(), 0);
  cpu::broadcast_strides(matrices, front, strides);
  return matrices.view(std::move(front), std::move(strides), matrices.offset);
}

Extents in_front(const Tensor& matrices) {
  return Extents(matrices.sizes.begin(), matrices.sizes.end() - 2);
}

Extents broadcast_front(const Tensor& a, const Tensor& b) {
  Tensor of_a = a, of_b = b;
  of_a.sizes = in_front(a);
  of_b.sizes = in_front(b);
  return cpu::broadcast_sizes(std::vector<const Tensor*>{&of_a, &of_b});
}

// Rows of X A = B, or columns of A X = B, which are rows of the transposed one.
Value solve_triangular(KernelCall& call) {
  const Tensor &square = call.tensor(0), &given = call.tensor(1);
  if (square.rank() < 2 || given.rank() < 2) throw KernelError("solve_triangular: two dimensions or more");
  const bool is_upper = call.boolean(2), is_left = call.boolean(3);
  const std::int64_t length = square.sizes.back();
  const Tensor by_rows = is_left ? transposed(given) : given;
  if (square.sizes[square.rank() - 2] != length || by_rows.sizes.back() != length)
    throw KernelError("solve_triangular: the sizes of the two matrices do not fit");
  const Extents front = broadcast_front(square, given);
  Scratch scratch(call);
  const DType dtype = computed_dtype(given.dtype);
  const Tensor a = scratch.dense(spread(square, front), dtype),
               x = scratch.copied(spread(by_rows, front), dtype);
  const std::int64_t down = is_left ? length : 1, across = is_left ? 1 : length;
  with_float(given.dtype, [&](auto zero) {
    using C = decltype(zero);
    if (x.numel() == 0) return;
    scratch.launch(tasks::SolveTask<C>{a.data<C>(), x.data<C>(), length, x.sizes[x.rank() - 2], down, across,
                                       is_upper != is_left, call.boolean(4)},
                   x.numel() / length, {&a, &x});
  });
  const Tensor solved = is_left ? transposed(x) : x;
  Tensor out = call.make_result(0, given.dtype, solved.sizes);
  cpu::copy_elements(solved, out);
  return out;
}

constexpr KernelRow kRows[] = {
    {"aten.linalg_solve_triangular.default", solve_triangular},
};

}  // namespace

std::span<const KernelRow> solve_rows() {
  return kRows;
}

}  // namespace epweave::replay::shared
