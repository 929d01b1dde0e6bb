// Sums, extremes, scans and sorts on the device.
#include <algorithm>

#include "ir/promotion.h"
#include "replay/cpu/elements.h"
#include "replay/device/kernels.h"
#include "replay/device/scratch.h"

namespace epweave::replay::device {
namespace {

// Which dimensions go; None or an empty list is all of them.
std::vector<bool> reduced_dims(const Value& dims, std::size_t rank) {
  if (dims.is_none() || (dims.is<List>() && dims.items().empty())) return std::vector<bool>(rank, true);
  std::vector<bool> reduced(rank, false);
  for (std::int64_t d : dims.integers())
    if (const std::size_t dim = cpu::checked_dim(d, rank); dim < rank) reduced[dim] = true;
  return reduced;
}

// What is reduced: the dimensions that go, and whether they stay with an extent of 1.
struct Reduction {
  std::vector<bool> dims;
  bool keepdim = false;
};
Reduction all_of(const KernelCall& call) {
  return {std::vector<bool>(call.tensor(0).rank(), true), false};
}
Reduction some_of(const KernelCall& call) {
  return {reduced_dims(call[1], call.tensor(0).rank()), call.boolean(2)};
}

// The argument as a row-major matrix of `dtype`, a row per result.
struct Rows {
  Tensor matrix;
  Extents sizes;  // of the result
};
Rows rows_of(Scratch& scratch, const Tensor& self, const Reduction& reduction, DType dtype) {
  Rows rows;
  Extents sizes, strides;
  std::int64_t count = 1, length = 1;
  for (const bool last : {false, true})
    for (std::size_t d = 0; d < self.rank(); ++d) {
      if (reduction.dims[d] != last) continue;
      sizes.push_back(self.sizes[d]);
      strides.push_back(self.strides[d]);
      (last ? length : count) *= self.sizes[d];
    }
  for (std::size_t d = 0; d < self.rank(); ++d) {
    if (!reduction.dims[d])
      rows.sizes.push_back(self.sizes[d]);
    else if (reduction.keepdim)
      rows.sizes.push_back(1);
  }
  const Tensor moved{self.dtype, std::move(sizes), std::move(strides), self.offset, self.storage};
  rows.matrix = as_matrix(scratch.dense(moved, dtype), count, length);
  return rows;
}

DType sum_dtype(const KernelCall& call, std::size_t param) {
  return call[param].is<DType>() ? call[param].as<DType>() : to_sum(call.tensor(0).dtype);
}

Value sum_as(KernelCall& call, const Reduction& reduction, DType dtype, Scratch::Sum sum) {
  if (compute_of(dtype) == Compute::kComplex) throw KernelError("sums of complex numbers are not supported");
  if (sum == Scratch::Sum::kMean) with_float(dtype, [](auto) {});
  Scratch scratch(call);
  const Rows rows = rows_of(scratch, call.tensor(0), reduction, computed_dtype(dtype));
  return store_result(call, 0, dtype, rows.sizes, scratch.sum_rows(rows.matrix, sum));
}
Value sum(KernelCall& call) {
  return sum_as(call, all_of(call), sum_dtype(call, 1), Scratch::Sum::kTotal);
}
Value sum_dims(KernelCall& call) {
  return sum_as(call, some_of(call), sum_dtype(call, 3), Scratch::Sum::kTotal);
}
DType mean_dtype(const KernelCall& call, std::size_t param) {
  return call[param].is<DType>() ? call[param].as<DType>() : call.tensor(0).dtype;
}
Value mean(KernelCall& call) {
  return sum_as(call, all_of(call), mean_dtype(call, 1), Scratch::Sum::kMean);
}
Value mean_dims(KernelCall& call) {
  return sum_as(call, some_of(call), mean_dtype(call, 3), Scratch::Sum::kMean);
}

// ---- extremes -----------------------------------------------------------------------------

struct Found {
  Rows rows;
  Tensor values, positions;  // computed dtype, int64; by row
};
Found find_in_rows(Scratch& scratch, const Tensor& self, const Reduction& reduction, RowOp op) {
  Found found{rows_of(scratch, self, reduction, computed_dtype(self.dtype)), {}, {}};
  const Tensor& matrix = found.rows.matrix;
  const bool is_extreme = op == RowOp::kLargest || op == RowOp::kSmallest;
  if (is_extreme && matrix.sizes[1] == 0 && matrix.sizes[0] != 0)
    throw KernelError("the extreme of no elements");
  found.values = scratch.make(matrix.dtype, {matrix.sizes[0]});
  found.positions = scratch.make(DType::kInt64, {matrix.sizes[0]});
  with_real(self.dtype, [&](auto zero) {
    using C = decltype(zero);
    const RowsOf<C> rows{matrix.data<C>(), matrix.sizes[1], matrix.sizes[1], 1};
    scratch.launcher().launch(FindInRowTask<C>{rows, is_extreme ? found.values.data<C>() : nullptr,
                                               found.positions.data<std::int64_t>(), op},
                              matrix.sizes[0], {&matrix, &found.values, &found.positions});
  });
  return found;
}

template <RowOp op, Reduction (*dims)(const KernelCall&)>
Value extreme(KernelCall& call) {
  Scratch scratch(call);
  const Found found = find_in_rows(scratch, call.tensor(0), dims(call), op);
  return store_result(call, 0, call.tensor(0).dtype, found.rows.sizes, found.values);
}
template <RowOp op>
Value extreme_and_position(KernelCall& call) {
  Scratch scratch(call);
  const Found found = find_in_rows(scratch, call.tensor(0), some_of(call), op);
  Tensor values = store_result(call, 0, call.tensor(0).dtype, found.rows.sizes, found.values);
  Tensor positions = store_result(call, 1, DType::kInt64, found.rows.sizes, found.positions);
  return Value::tuple({values, positions});
}
template <RowOp op>
Value position_of_extreme(KernelCall& call) {
  Scratch scratch(call);
  const Found found = find_in_rows(scratch, call.tensor(0), some_of(call), op);
  return store_result(call, 0, DType::kInt64, found.rows.sizes, found.positions);
}
template <RowOp op, Reduction (*dims)(const KernelCall&)>
Value quantify(KernelCall& call) {
  Scratch scratch(call);
  const Tensor& self = call.tensor(0);
  const Found found = find_in_rows(scratch, self, dims(call), op);
  const DType dtype = self.dtype == DType::kUint8 ? DType::kUint8 : DType::kBool;
  return store_result(call, 0, dtype, found.rows.sizes, found.positions);
}

// ---- scans, sorts -------------------------------------------------------------------------

// Partial sums in ascending order, each rounded when stored only.
void accumulate(Scratch& scratch, const Tensor& self, std::size_t dim, const Tensor& out) {
  if (self.rank() == 0) return cpu::copy_elements(self, out);
  const Tensor x = scratch.copied(with_dim_last(self, dim), computed_dtype(out.dtype));
  const std::int64_t length = self.sizes[dim], count = length == 0 ? 0 : x.numel() / length;
  with_real(out.dtype, [&](auto zero) {
    using C = decltype(zero);
    scratch.launcher().launch(CumulativeTask<C>{x.data<C>(), length}, count, {&x});
  });
  cpu::copy_elements(x, with_dim_last(out, dim));
}
Value cumsum(KernelCall& call) {
  Scratch scratch(call);
  const Tensor& self = call.tensor(0);
  Tensor out = call.make_result(0, sum_dtype(call, 2), self.sizes);
  accumulate(scratch, self, cpu::checked_dim(call.integer(1), self.rank()), out);
  return out;
}
Value cumsum_in_place(KernelCall& call) {
  Scratch scratch(call);
  const Tensor& self = call.tensor(0);
  accumulate(scratch, self, cpu::checked_dim(call.integer(1), self.rank()), self);
  return self;
}

struct Request {
  std::size_t dim = 0;
  bool is_descending = false;
  std::int64_t count = 0;
};
struct Sorted {
  Tensor values, indices;
};
Sorted sort_rows(KernelCall& call, const Request& request) {
  const Tensor& self = call.tensor(0);
  Scratch scratch(call);
  Extents sizes = self.sizes;
  const std::int64_t length = self.rank() == 0 ? 1 : self.sizes[request.dim];
  if (self.rank() != 0) sizes[request.dim] = request.count;
  Sorted sorted{call.make_result(0, self.dtype, sizes), call.make_result(1, DType::kInt64, sizes)};
  const Tensor x = scratch.dense(with_dim_last(self, request.dim), computed_dtype(self.dtype));
  const Extents sorted_sizes = with_dim_last(sorted.values, request.dim).sizes;
  const Tensor values = scratch.make(x.dtype, sorted_sizes),
               indices = scratch.make(DType::kInt64, sorted_sizes);
  with_real(self.dtype, [&](auto zero) {
    using C = decltype(zero);
    const RowsOf<C> rows{x.data<C>(), length, length, 1};
    scratch.launcher().launch(SortTask<C>{rows, values.data<C>(), indices.data<std::int64_t>(), request.count,
                                          request.is_descending},
                              x.numel(), {&x, &values, &indices});
  });
  cpu::copy_elements(values, with_dim_last(sorted.values, request.dim));
  cpu::copy_elements(indices, with_dim_last(sorted.indices, request.dim));
  return sorted;
}
Request whole(const KernelCall& call, std::size_t dim_param, std::size_t descending_param) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = cpu::checked_dim(call.integer(dim_param), self.rank());
  return {dim, call.boolean(descending_param), self.rank() == 0 ? 1 : self.sizes[dim]};
}
Value pair(const Sorted& sorted) {
  return Value::tuple({sorted.values, sorted.indices});
}
Value sort(KernelCall& call) {
  return pair(sort_rows(call, whole(call, 1, 2)));
}
Value sort_stable(KernelCall& call) {
  return pair(sort_rows(call, whole(call, 2, 3)));
}
Value argsort(KernelCall& call) {
  return sort_rows(call, whole(call, 1, 2)).indices;
}
Value argsort_stable(KernelCall& call) {
  return sort_rows(call, whole(call, 2, 3)).indices;
}
Value topk(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const std::size_t dim = cpu::checked_dim(call.integer(2), self.rank());
  const std::int64_t count = call.integer(1);
  if (count < 0 || count > (self.rank() == 0 ? 1 : self.sizes[dim]))
    throw KernelError("topk: k exceeds the dimension");
  return pair(sort_rows(call, {dim, call.boolean(3), count}));
}

Value assert_true(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  if (self.numel() != 1) throw KernelError("an assertion on a tensor of one element");
  Launcher& launcher = launcher_of(call);
  launcher.launch(AssertTask{self.bytes(), stored_of(self.dtype), launcher.sink()}, 1, {&self});
  return Value();
}

constexpr KernelRow kRows[] = {
    {"aten._assert_async.default", assert_true},
    {"aten._assert_async.msg", assert_true},
    {"aten.all.default", quantify<RowOp::kAll, all_of>},
    {"aten.all.dim", quantify<RowOp::kAll, some_of>},
    {"aten.all.dims", quantify<RowOp::kAll, some_of>},
    {"aten.amax.default", extreme<RowOp::kLargest, some_of>},
    {"aten.amin.default", extreme<RowOp::kSmallest, some_of>},
    {"aten.any.default", quantify<RowOp::kAny, all_of>},
    {"aten.any.dim", quantify<RowOp::kAny, some_of>},
    {"aten.any.dims", quantify<RowOp::kAny, some_of>},
    {"aten.argmax.default", position_of_extreme<RowOp::kLargest>},
    {"aten.argmin.default", position_of_extreme<RowOp::kSmallest>},
    {"aten.argsort.default", argsort},
    {"aten.argsort.stable", argsort_stable},
    {"aten.cumsum.default", cumsum},
    {"aten.cumsum_.default", cumsum_in_place},
    {"aten.max.default", extreme<RowOp::kLargest, all_of>},
    {"aten.max.dim", extreme_and_position<RowOp::kLargest>},
    {"aten.mean.default", mean},
    {"aten.mean.dim", mean_dims},
    {"aten.min.dim", extreme_and_position<RowOp::kSmallest>},
    {"aten.sort.default", sort},
    {"aten.sort.stable", sort_stable},
    {"aten.sum.default", sum},
    {"aten.sum.dim_IntList", sum_dims},
    {"aten.topk.default", topk},
};

}  // namespace

std::span<const KernelRow> reduce_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
