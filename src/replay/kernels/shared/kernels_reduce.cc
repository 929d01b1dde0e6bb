// Sums, means, extremes and quantifiers of rows.
#include "ir/types/promotion.h"
#include "replay/kernels/shared/kernels.h"
#include "replay/kernels/shared/reduction.h"
#include "replay/kernels/shared/whole_rows.h"

namespace epweave::replay::shared {
namespace {

DType sum_dtype(const KernelCall& call, std::size_t param) {
  return call[param].is<DType>() ? call[param].as<DType>() : to_sum(call.tensor(0).dtype);
}
DType mean_dtype(const KernelCall& call, std::size_t param) {
  return call[param].is<DType>() ? call[param].as<DType>() : call.tensor(0).dtype;
}

Value sum_as(KernelCall& call, const Reduction& reduction, DType dtype, Scratch::Sum sum) {
  if (cpu::compute_of(dtype) == Compute::kComplex)
    throw KernelError("sums of complex numbers are not supported");
  if (sum == Scratch::Sum::kMean) floating_dtype(dtype);
  const RowDTypes dtypes{dtype, computed_dtype(dtype)};
  Scratch scratch(call);
  const ReducedRows in = reduced_rows(scratch, call.tensor(0), reduction);
  const Tensor out = call.make_result(0, dtypes.result, in.sizes);
  const Rows results = scratch.rows_for(out, out.rank());
  if (dtypes.computed == DType::kFloat32)
    if (const std::optional<Tensor> sums = sum_in_place(scratch, in.rows, sum)) {
      cpu::copy_elements(sums->view(out.sizes, contiguous_strides(out.sizes), sums->offset), out);
      return out;
    }
  scratch.for_each_block(in.rows, {&results}, [&](const Block& block) {
    block.store(scratch.sum_rows(block.load(in.rows, dtypes.computed), sum), results);
  });
  return out;
}
Value sum(KernelCall& call) {
  return sum_as(call, all_of(call), sum_dtype(call, 1), Scratch::Sum::kTotal);
}
Value sum_dims(KernelCall& call) {
  return sum_as(call, some_of(call), sum_dtype(call, 3), Scratch::Sum::kTotal);
}
// What is no number counts as 0.
Value sum_of_numbers(KernelCall& call) {
  const DType dtype = sum_dtype(call, 3);
  if (!is_floating(call.tensor(0).dtype)) return sum_dims(call);
  return map_rows_to_one(
      call, some_of(call), {dtype, computed_dtype(dtype)}, [](Scratch& scratch, const Tensor& x) {
        const Tensor zero = scratch.filled(x.dtype, {1, 1}, Value(0.0));
        return scratch.sum_rows(scratch.map<math::Select>(scratch.map<math::IsNan>(x), zero, x));
      });
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
  const DType dtype = call.tensor(0).dtype;
  return map_rows_to_one(
      call, dims(call), {dtype, computed_dtype(dtype)},
      [](Scratch& scratch, const Tensor& x) { return scratch.find_in_rows(x, op).values; });
}
// max.dim, min.dim: values and positions.
template <RowOp op>
Value extreme_and_position(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Scratch scratch(call);
  const ReducedRows in = reduced_rows(scratch, self, some_of(call));
  const Tensor values = call.make_result(0, self.dtype, in.sizes),
               positions = call.make_result(1, DType::kInt64, in.sizes);
  const Rows value_rows = scratch.rows_for(values, values.rank()),
             position_rows = scratch.rows_for(positions, positions.rank());
  scratch.for_each_block(in.rows, {&value_rows, &position_rows}, [&](const Block& block) {
    const Scratch::Found found = scratch.find_in_rows(block.load(in.rows, computed_dtype(self.dtype)), op);
    block.store(found.values, value_rows);
    block.store(found.positions, position_rows);
  });
  return Value::tuple({values, positions});
}
template <RowOp op>
Value position_of_extreme(KernelCall& call) {
  return map_rows_to_one(
      call, some_of(call), {DType::kInt64, computed_dtype(call.tensor(0).dtype)},
      [](Scratch& scratch, const Tensor& x) { return scratch.find_in_rows(x, op).positions; });
}
// min and max; a NaN wins both.
Value extremes(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Scratch scratch(call);
  const ReducedRows in = reduced_rows(scratch, self, some_of(call));
  const Tensor least = call.make_result(0, self.dtype, in.sizes),
               largest = call.make_result(1, self.dtype, in.sizes);
  const Rows least_rows = scratch.rows_for(least, least.rank()),
             largest_rows = scratch.rows_for(largest, largest.rank());
  scratch.for_each_block(in.rows, {&least_rows, &largest_rows}, [&](const Block& block) {
    const Tensor x = block.load(in.rows, computed_dtype(self.dtype));
    block.store(scratch.find_in_rows(x, RowOp::kSmallest).values, least_rows);
    block.store(scratch.find_in_rows(x, RowOp::kLargest).values, largest_rows);
  });
  return Value::tuple({least, largest});
}
// An empty list names no dimension: each element is a row.
Reduction named_of(const KernelCall& call) {
  const bool names_none = call[1].is<List>() && call[1].items().empty();
  return names_none ? Reduction{std::vector<bool>(call.tensor(0).rank(), false), false} : some_of(call);
}
template <RowOp op, Reduction (*dims)(const KernelCall&)>
Value quantify(KernelCall& call) {
  const DType dtype = call.tensor(0).dtype;
  return map_rows_to_one(
      call, dims(call), {dtype == DType::kUint8 ? DType::kUint8 : DType::kBool, computed_dtype(dtype)},
      [](Scratch& scratch, const Tensor& x) {
        if (x.dtype != DType::kComplex64) return scratch.find_in_rows(x, op).positions;
        const Tensor zero = scratch.filled(x.dtype, {}, Value(0.0));
        const Tensor is_true = scratch.dense(scratch.map<math::NotEqual>(x, zero), DType::kFloat32);
        return scratch.find_in_rows(is_true, op).positions;
      });
}

// A CPU says what was asserted; a device's fault names the node only.
Value assert_true(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  if (self.numel() != 1) throw KernelError("an assertion on a tensor of one element");
  Scratch scratch(call);
  if (scratch.queue() != nullptr || call.size() < 2 || !call[1].is<Text>()) {
    scratch.launch(tasks::AssertTask{self.bytes(), stored_of(self.dtype), scratch.sink()}, 1, {&self});
  } else if (cpu::load_one<std::int64_t>(self) == 0) {
    throw KernelError("assertion failed: " + call[1].as<Text>().text);
  }
  return Value();
}

constexpr KernelRow kRows[] = {
    {"aten._assert_async.default", assert_true},
    {"aten._assert_async.msg", assert_true},
    {"aten.all.default", quantify<RowOp::kAll, all_of>},
    {"aten.all.dim", quantify<RowOp::kAll, some_of>},
    {"aten.all.dims", quantify<RowOp::kAll, named_of>},
    {"aten.amax.default", extreme<RowOp::kLargest, some_of>},
    {"aten.amin.default", extreme<RowOp::kSmallest, some_of>},
    {"aten.aminmax.default", extremes},
    {"aten.any.default", quantify<RowOp::kAny, all_of>},
    {"aten.any.dim", quantify<RowOp::kAny, some_of>},
    {"aten.any.dims", quantify<RowOp::kAny, named_of>},
    {"aten.argmax.default", position_of_extreme<RowOp::kLargest>},
    {"aten.argmin.default", position_of_extreme<RowOp::kSmallest>},
    {"aten.max.default", extreme<RowOp::kLargest, all_of>},
    {"aten.max.dim", extreme_and_position<RowOp::kLargest>},
    {"aten.mean.default", mean},
    {"aten.mean.dim", mean_dims},
    {"aten.min.default", extreme<RowOp::kSmallest, all_of>},
    {"aten.min.dim", extreme_and_position<RowOp::kSmallest>},
    {"aten.nansum.default", sum_of_numbers},
    {"aten.sum.default", sum},
    {"aten.sum.dim_IntList", sum_dims},
};

}  // namespace

std::span<const KernelRow> reduce_rows() {
  return kRows;
}

}  // namespace epweave::replay::shared
