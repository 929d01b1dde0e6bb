// sort, argsort, topk. Equal elements keep their order; NaN is the largest.
#include <numeric>

#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/operands.h"

namespace epweave::replay::cpu {
namespace {

enum class Direction { kAscending, kDescending };

template <class C>
bool is_less(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (a != a) return false;
    if (b != b) return true;
  }
  return a < b;
}

// The order of n elements.
template <class C>
Buffer<std::int64_t> sorted_order(const C* x, std::int64_t n, Direction direction) {
  Buffer<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  if (direction == Direction::kAscending)
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return is_less(x[a], x[b]); });
  else
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return is_less(x[b], x[a]); });
  return order;
}

Tensor with_dim_last(Tensor tensor, std::size_t dim) {
  if (tensor.rank() == 0) return tensor;
  const auto at = static_cast<std::ptrdiff_t>(dim);
  std::rotate(tensor.sizes.begin() + at, tensor.sizes.begin() + at + 1, tensor.sizes.end());
  std::rotate(tensor.strides.begin() + at, tensor.strides.begin() + at + 1, tensor.strides.end());
  return tensor;
}

// What is sorted: along which dimension, which way, and how many of the first are kept.
struct Request {
  std::size_t dim = 0;
  Direction direction = Direction::kAscending;
  std::int64_t count = 0;
};

struct Sorted {
  Tensor values, indices;
};
Sorted sort_rows_of(KernelCall& call, const Request& request) {
  const Tensor& self = call.tensor(0);
  Extents sizes = self.sizes;
  const std::int64_t length = self.rank() == 0 ? 1 : self.sizes[request.dim];
  if (self.rank() != 0) sizes[request.dim] = request.count;
  Sorted sorted{call.make_result(0, self.dtype, sizes), call.make_result(1, DType::kInt64, sizes)};
  const auto run = [&](auto tag) {
    using C = typename decltype(tag)::type;
    const Buffer<C> x = dense<C>(with_dim_last(self, request.dim));
    Buffer<C> values;
    Buffer<std::int64_t> indices;
    const std::int64_t rows = length == 0 ? 0 : static_cast<std::int64_t>(x.size()) / length;
    for (std::int64_t r = 0; r < rows; ++r) {
      const C* row = x.data() + r * length;
      const Buffer<std::int64_t> order = sorted_order(row, length, request.direction);
      for (std::int64_t i = 0; i < request.count; ++i) {
        indices.push_back(order[static_cast<std::size_t>(i)]);
        values.push_back(row[indices.back()]);
      }
    }
    store_dense(values, with_dim_last(sorted.values, request.dim));
    store_dense(indices, with_dim_last(sorted.indices, request.dim));
  };
  if (compute_of(self.dtype) == Compute::kInt)
    run(TypeTag<std::int64_t>{});
  else
    with_floating(self.dtype, run);
  return sorted;
}

Request whole(const KernelCall& call, std::size_t dim_param, std::size_t descending_param) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = checked_dim(call.integer(dim_param), self.rank());
  return {dim, call.boolean(descending_param) ? Direction::kDescending : Direction::kAscending,
          self.rank() == 0 ? 1 : self.sizes[dim]};
}
Value pair(const Sorted& sorted) {
  return Value::tuple({sorted.values, sorted.indices});
}

Value sort(KernelCall& call) {
  return pair(sort_rows_of(call, whole(call, 1, 2)));
}
Value sort_stable(KernelCall& call) {
  return pair(sort_rows_of(call, whole(call, 2, 3)));
}
Value argsort(KernelCall& call) {
  return sort_rows_of(call, whole(call, 1, 2)).indices;
}
Value argsort_stable(KernelCall& call) {
  return sort_rows_of(call, whole(call, 2, 3)).indices;
}

// The k largest (or smallest), sorted whatever `sorted` says; of equal ones the lower index first.
Value topk(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = checked_dim(call.integer(2), self.rank());
  const std::int64_t count = call.integer(1);
  if (count < 0 || count > (self.rank() == 0 ? 1 : self.sizes[dim]))
    throw KernelError("topk: k exceeds the dimension");
  return pair(
      sort_rows_of(call, {dim, call.boolean(3) ? Direction::kDescending : Direction::kAscending, count}));
}

constexpr KernelRow kRows[] = {
    {"aten.argsort.default", argsort}, {"aten.argsort.stable", argsort_stable},
    {"aten.sort.default", sort},       {"aten.sort.stable", sort_stable},
    {"aten.topk.default", topk},
};

}  // namespace

std::span<const KernelRow> sort_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
