// Variances, norms and products of elements.
#include <limits>

#include "ir/types/promotion.h"
#include "replay/kernels/shared/kernels.h"
#include "replay/kernels/shared/moments.h"
#include "replay/kernels/shared/reduction.h"

namespace epweave::replay::shared {
namespace {

using namespace math;  // NOLINT: the ops

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor constant(Scratch& scratch, DType dtype, double number) {
  return scratch.filled(dtype, {1, 1}, Value(number));
}

// ---- variance -----------------------------------------------------------------------------

enum class Spread : std::uint8_t { kVariance, kDeviation };
double read_correction(const KernelCall& call) {
  return call[2].is_none() ? 1.0 : call.real(2);
}
// var, std (self, dim, *, correction, keepdim).
template <Spread spread>
Value spread_of(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Reduction reduction{reduced_dims(call[1], self.rank()), call.boolean(3)};
  return map_rows_to_one(call, reduction, {self.dtype, floating_dtype(self.dtype)},
                         [&](Scratch& scratch, const Tensor& x) {
                           const Tensor variance = moments_of(scratch, x, read_correction(call)).variance;
                           return spread == Spread::kVariance ? variance : scratch.map<Sqrt>(variance);
                         });
}
template <Spread spread>
Value spread_and_mean(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const DType dtype = floating_dtype(self.dtype);
  Scratch scratch(call);
  const ReducedRows in = reduced_rows(scratch, self, {reduced_dims(call[1], self.rank()), call.boolean(3)});
  const Tensor of_spread = call.make_result(0, self.dtype, in.sizes),
               mean = call.make_result(1, self.dtype, in.sizes);
  const Rows to_spread = scratch.rows_for(of_spread, of_spread.rank()),
             to_mean = scratch.rows_for(mean, mean.rank());
  scratch.for_each_block(in.rows, {&to_spread, &to_mean}, [&](const Block& block) {
    const Moments moments = moments_of(scratch, block.load(in.rows, dtype), read_correction(call));
    block.store(spread == Spread::kVariance ? moments.variance : scratch.map<Sqrt>(moments.variance),
                to_spread);
    block.store(moments.mean, to_mean);
  });
  return Value::tuple({of_spread, mean});
}

// ---- norms --------------------------------------------------------------------------------

Tensor extreme_magnitude(Scratch& scratch, const Tensor& x, RowOp op) {
  return scratch.find_in_rows(scratch.map<Abs>(x), op).values;
}
Tensor norm_of(Scratch& scratch, const Tensor& x, double order) {
  if (x.sizes[1] == 0 && (order < 0 || order == kInfinity))
    throw KernelError("linalg_vector_norm: no elements have no norm of that order");
  if (order == kInfinity) return extreme_magnitude(scratch, x, RowOp::kLargest);
  if (order == -kInfinity) return extreme_magnitude(scratch, x, RowOp::kSmallest);
  if (order == 0) return scratch.sum_rows(scratch.map<NotEqual>(x, constant(scratch, x.dtype, 0.0)));
  if (order == 1) return scratch.sum_rows(scratch.map<Abs>(x));
  if (order == 2) return scratch.map<Sqrt>(scratch.sum_rows(scratch.map<Square>(x)));
  const Tensor power = constant(scratch, x.dtype, order);
  const Tensor root = scratch.map<Div>(constant(scratch, x.dtype, 1.0), power);
  const Tensor total = scratch.sum_rows(scratch.map<PowerOf>(scratch.map<Abs>(x), power));
  return scratch.map<PowerOf>(total, root);
}
// linalg_vector_norm(self, ord, dim, keepdim, *, dtype).
Value vector_norm(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const DType dtype = call[4].is<DType>() ? call[4].as<DType>() : self.dtype;
  return map_rows_to_one(
      call, {reduced_dims(call[2], self.rank()), call.boolean(3)}, {dtype, floating_dtype(dtype)},
      [&](Scratch& scratch, const Tensor& x) { return norm_of(scratch, x, call.real(1)); });
}

// The row's maximum (0 where it is not finite) and the logarithm of the sum of exponentials of what
// is beyond it.
Tensor log_sum_exp(Scratch& scratch, const Tensor& x) {
  const Tensor maximum = scratch.maximum_of_rows(x, NanRule::kSkip);
  const Tensor shift =
      scratch.map<Select>(scratch.map<IsInf>(maximum), constant(scratch, x.dtype, 0.0), maximum);
  const Tensor total = scratch.sum_rows(scratch.map<Exp>(scratch.map<Difference>(x, shift)));
  return scratch.map_with<AddScaled>(Value(1.0), shift, scratch.map<LogOf>(total));
}
Value logsumexp(KernelCall& call) {
  const DType dtype = to_float(call.tensor(0).dtype);
  return map_rows_to_one(call, some_of(call), {dtype, floating_dtype(dtype)}, log_sum_exp);
}

// ---- products -----------------------------------------------------------------------------

// Ascending, one factor at a time.
Tensor product_of_rows(Scratch& scratch, const Tensor& x) {
  const std::int64_t count = x.sizes[0], length = x.sizes[1];
  if (length == 0) return scratch.filled(x.dtype, {count, 1}, Value(std::int64_t{1}));
  const Tensor products = scratch.copied(x, x.dtype);
  scratch.scan_rows(products, ScanOp::kProduct);
  return scratch.dense(products.view({count, 1}, {length, 1}, products.offset + length - 1), x.dtype);
}
Value product_of(KernelCall& call, const Reduction& reduction, std::size_t dtype_param) {
  const DType dtype =
      call[dtype_param].is<DType>() ? call[dtype_param].as<DType>() : to_sum(call.tensor(0).dtype);
  return map_rows_to_one(call, reduction, {dtype, computed_dtype(dtype)}, product_of_rows);
}
Value product(KernelCall& call) {
  return product_of(call, all_of(call), 1);
}
Value product_along(KernelCall& call) {
  const std::size_t rank = call.tensor(0).rank();
  return product_of(call, {reduced_dims(Value::list({call[1]}), rank), call.boolean(2)}, 3);
}

constexpr KernelRow kRows[] = {
    {"aten.linalg_vector_norm.default", vector_norm},
    {"aten.logsumexp.default", logsumexp},
    {"aten.prod.default", product},
    {"aten.prod.dim_int", product_along},
    {"aten.std.correction", spread_of<Spread::kDeviation>},
    {"aten.std_mean.correction", spread_and_mean<Spread::kDeviation>},
    {"aten.var.correction", spread_of<Spread::kVariance>},
    {"aten.var_mean.correction", spread_and_mean<Spread::kVariance>},
};

}  // namespace

std::span<const KernelRow> statistics_rows() {
  return kRows;
}

}  // namespace epweave::replay::shared
