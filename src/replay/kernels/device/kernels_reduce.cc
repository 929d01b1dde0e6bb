// Sums and extremes on the device.
#include <algorithm>

#include "ir/types/promotion.h"
#include "replay/kernels/device/kernels.h"
#include "replay/kernels/device/reduction.h"
#include "replay/kernels/host/elements.h"

namespace epweave::replay::device {

Found find_in_rows(Scratch& scratch, const Tensor& self, const Reduction& reduction, RowOp op) {
  Found found{rows_of(scratch, self, reduction, computed_dtype(self.dtype)), {}, {}};
  const Tensor& matrix = found.rows.matrix;
  const bool is_extreme = op == RowOp::kLargest || op == RowOp::kSmallest;
  if (is_extreme && matrix.sizes[1] == 0 && matrix.sizes[0] != 0)
    throw KernelError("the extreme of no elements");
  found.values = scratch.make(matrix.dtype, {matrix.sizes[0]});
  found.positions = scratch.make(DType::kInt64, {matrix.sizes[0]});
  const std::int64_t length = matrix.sizes[1],
                     tiles = std::max<std::int64_t>((length + kFindTile - 1) / kFindTile, 1);
  const Tensor of_tiles = scratch.make(DType::kInt64, {matrix.sizes[0], tiles});
  with_real(self.dtype, [&](auto zero) {
    using C = decltype(zero);
    const RowsOf<C> rows{matrix.data<C>(), length, length, 1};
    scratch.launcher().launch(FindInTileTask<C>{rows, tiles, of_tiles.data<std::int64_t>(), op},
                              of_tiles.numel(), {&matrix, &of_tiles});
    scratch.launcher().launch(FindAmongTilesTask<C>{rows, tiles, of_tiles.data<std::int64_t>(),
                                                    is_extreme ? found.values.data<C>() : nullptr,
                                                    found.positions.data<std::int64_t>(), op},
                              matrix.sizes[0], {&matrix, &of_tiles, &found.values, &found.positions});
  });
  return found;
}

namespace {

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
    {"aten.max.default", extreme<RowOp::kLargest, all_of>},
    {"aten.max.dim", extreme_and_position<RowOp::kLargest>},
    {"aten.mean.default", mean},
    {"aten.mean.dim", mean_dims},
    {"aten.min.dim", extreme_and_position<RowOp::kSmallest>},
    {"aten.sum.default", sum},
    {"aten.sum.dim_IntList", sum_dims},
};

}  // namespace

std::span<const KernelRow> reduce_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
