// Variances, norms, products of elements and layer norm on the device: sums of rows and elementwise
// steps, each rounded where the CPU's kernel rounds (kernels/host/kernels_statistics.cc).
#include <limits>

#include "ir/types/promotion.h"
#include "replay/kernels/device/kernels.h"
#include "replay/kernels/device/reduction.h"
#include "replay/kernels/ops/normalise_call.h"

namespace epweave::replay::device {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

DType floating_dtype(DType dtype) {
  return with_float(dtype, [](auto zero) { return dtype_of<decltype(zero)>; });
}
Tensor constant(Scratch& scratch, DType dtype, double number) {
  return scratch.filled(dtype, {1, 1}, Value(number));
}
Tensor difference(Scratch& scratch, const Tensor& x, const Tensor& y) {
  return scratch.map(ElementOp::kSubScaled, {&x, &y}, Value(1.0));
}
Tensor sum_of_two(Scratch& scratch, const Tensor& x, const Tensor& y) {
  return scratch.map(ElementOp::kAddScaled, {&x, &y}, Value(1.0));
}

// ---- variance -----------------------------------------------------------------------------

struct Moments {
  Tensor mean, variance, distances;  // of the elements from the mean
};
Moments moments_of(Scratch& scratch, const Tensor& matrix, double correction) {
  const Tensor mean = scratch.sum_rows(matrix, Scratch::Sum::kMean);
  const Tensor distances = difference(scratch, matrix, mean);
  const Tensor squares = scratch.map(ElementOp::kSquare, {&distances});
  const double divisor = static_cast<double>(matrix.sizes[1]) - correction;
  const Tensor total = scratch.sum_rows(squares),
               degrees = constant(scratch, matrix.dtype, divisor > 0 ? divisor : 0.0);
  return {mean, scratch.map(ElementOp::kDiv, {&total, &degrees}), distances};
}

enum class Spread : std::uint8_t { kVariance, kDeviation };
// var, std (self, dim, *, correction, keepdim); var_mean gives the mean too.
Value spread_of(KernelCall& call, Spread spread, std::size_t result_count) {
  const Tensor& self = call.tensor(0);
  Scratch scratch(call);
  const Rows rows = rows_of(scratch, self, {reduced_dims(call[1], self.rank()), call.boolean(3)},
                            floating_dtype(self.dtype));
  const Moments moments = moments_of(scratch, rows.matrix, call[2].is_none() ? 1.0 : call.real(2));
  Value out = store_result(
      call, 0, self.dtype, rows.sizes,
      spread == Spread::kVariance ? moments.variance : scratch.map(ElementOp::kSqrt, {&moments.variance}));
  if (result_count == 1) return out;
  return Value::tuple({out, store_result(call, 1, self.dtype, rows.sizes, moments.mean)});
}
Value variance(KernelCall& call) {
  return spread_of(call, Spread::kVariance, 1);
}
Value deviation(KernelCall& call) {
  return spread_of(call, Spread::kDeviation, 1);
}
Value variance_and_mean(KernelCall& call) {
  return spread_of(call, Spread::kVariance, 2);
}

// ---- norms --------------------------------------------------------------------------------

// The largest or smallest magnitude; of no elements, 0 or infinity.
Tensor extreme_magnitude(Scratch& scratch, const Tensor& matrix, RowOp op) {
  const double of_none = op == RowOp::kLargest ? 0.0 : kInfinity;
  if (matrix.sizes[1] == 0) return scratch.filled(matrix.dtype, {matrix.sizes[0], 1}, Value(of_none));
  const Tensor magnitudes = scratch.map(ElementOp::kAbs, {&matrix});
  return find_in_rows(scratch, magnitudes, {{false, true}, true}, op).values;
}
Tensor norm_of(Scratch& scratch, const Tensor& matrix, double order) {
  if (order == kInfinity) return extreme_magnitude(scratch, matrix, RowOp::kLargest);
  if (order == -kInfinity) return extreme_magnitude(scratch, matrix, RowOp::kSmallest);
  if (order == 0) {
    const Tensor zero = constant(scratch, matrix.dtype, 0.0);
    return scratch.sum_rows(scratch.map(ElementOp::kNotEqual, {&matrix, &zero}));
  }
  if (order == 1) return scratch.sum_rows(scratch.map(ElementOp::kAbs, {&matrix}));
  if (order == 2) {
    const Tensor total = scratch.sum_rows(scratch.map(ElementOp::kSquare, {&matrix}));
    return scratch.map(ElementOp::kSqrt, {&total});
  }
  const Tensor power = constant(scratch, matrix.dtype, order), one = constant(scratch, matrix.dtype, 1.0);
  const Tensor root = scratch.map(ElementOp::kDiv, {&one, &power});
  const Tensor magnitudes = scratch.map(ElementOp::kAbs, {&matrix});
  const Tensor total = scratch.sum_rows(scratch.map(ElementOp::kPowerOf, {&magnitudes, &power}));
  return scratch.map(ElementOp::kPowerOf, {&total, &root});
}
// linalg_vector_norm(self, ord, dim, keepdim, *, dtype).
Value vector_norm(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const DType dtype = call[4].is<DType>() ? call[4].as<DType>() : self.dtype;
  Scratch scratch(call);
  const Rows rows =
      rows_of(scratch, self, {reduced_dims(call[2], self.rank()), call.boolean(3)}, floating_dtype(dtype));
  return store_result(call, 0, dtype, rows.sizes, norm_of(scratch, rows.matrix, call.real(1)));
}

// The row's maximum (0 where it is not finite) and the logarithm of the sum of exponentials of what
// is beyond it.
Value logsumexp(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const DType dtype = to_float(self.dtype);
  Scratch scratch(call);
  const Rows rows =
      rows_of(scratch, self, {reduced_dims(call[1], self.rank()), call.boolean(2)}, floating_dtype(dtype));
  const Tensor maximum = scratch.maximum_of_rows(rows.matrix, NanRule::kSkip);
  const Tensor is_infinite = scratch.map(ElementOp::kIsInf, {&maximum}),
               zero = constant(scratch, maximum.dtype, 0.0);
  const Tensor shift = scratch.map(ElementOp::kSelect, {&is_infinite, &zero, &maximum});
  const Tensor shifted = difference(scratch, rows.matrix, shift);
  const Tensor total = scratch.sum_rows(scratch.map(ElementOp::kExp, {&shifted}));
  const Tensor logarithm = scratch.map(ElementOp::kLogOf, {&total});
  return store_result(call, 0, dtype, rows.sizes, sum_of_two(scratch, shift, logarithm));
}

// ---- products -----------------------------------------------------------------------------

// Ascending, one factor at a time.
Value product_of(KernelCall& call, const Reduction& reduction, DType dtype) {
  Scratch scratch(call);
  Tensor matrix = rows_of(scratch, call.tensor(0), reduction, computed_dtype(dtype)).matrix;
  const Extents sizes = cpu::rows_of(call.tensor(0), reduction.dims, reduction.keepdim).sizes;
  const std::int64_t count = matrix.sizes[0], length = matrix.sizes[1];
  if (length == 0)
    return store_result(call, 0, dtype, sizes, scratch.filled(matrix.dtype, {count}, Value(std::int64_t{1})));
  matrix = scratch.copied(matrix, matrix.dtype);
  scratch.scan_rows(matrix, ScanOp::kProduct);
  const Tensor last = matrix.view({count}, {length}, matrix.offset + length - 1);
  return store_result(call, 0, dtype, sizes, scratch.dense(last, last.dtype));
}
DType product_dtype(const KernelCall& call, std::size_t param) {
  return call[param].is<DType>() ? call[param].as<DType>() : to_sum(call.tensor(0).dtype);
}
Value product(KernelCall& call) {
  return product_of(call, all_of(call), product_dtype(call, 1));
}
Value product_along(KernelCall& call) {
  const std::size_t rank = call.tensor(0).rank();
  return product_of(call, {reduced_dims(Value::list({call[1]}), rank), call.boolean(2)},
                    product_dtype(call, 3));
}

// ---- layer norm ---------------------------------------------------------------------------

// The argument as [rows, length].
Tensor norm_matrix(Scratch& scratch, const Tensor& tensor, std::int64_t length, DType dtype) {
  const Tensor dense = scratch.dense(tensor, dtype);
  return as_matrix(dense, length == 0 ? 0 : dense.numel() / length, length);
}
struct NormWeight {
  const Value& given;
  double otherwise;
};
Tensor weight_row(Scratch& scratch, const NormWeight& weight, std::int64_t length, DType dtype) {
  if (weight.given.is_none()) return scratch.filled(dtype, {1, length}, Value(weight.otherwise));
  return as_matrix(scratch.dense(weight.given.tensor(), dtype), 1, length);
}

// ((x - mean) * rstd) * weight + bias, the last two fused; rstd = 1 / sqrt(variance + eps).
Value layer_norm(KernelCall& call) {
  const Tensor& input = call.tensor(0);
  const Extents shape = call[1].integers();
  const std::int64_t length = cpu::norm_length(input, shape);
  const DType dtype = floating_dtype(input.dtype);
  Scratch scratch(call);
  const Tensor x = norm_matrix(scratch, input, length, dtype);
  const Tensor weight = weight_row(scratch, {call[2], 1.0}, length, dtype),
               bias = weight_row(scratch, {call[3], 0.0}, length, dtype);
  const Moments moments = moments_of(scratch, x, 0);
  const Tensor shifted = sum_of_two(scratch, moments.variance, constant(scratch, dtype, call.real(4)));
  const Tensor rstd = scratch.map(ElementOp::kRsqrt, {&shifted});
  const Tensor normal = scratch.map(ElementOp::kMul, {&moments.distances, &rstd});
  const Tensor full_bias = scratch.make(dtype, normal.sizes);
  scratch.map_into(full_bias, ElementOp::kCopy, {&bias});
  const Tensor scaled = scratch.map(ElementOp::kAddProduct, {&full_bias, &normal, &weight}, Value(1.0));
  Tensor out = store_result(call, 0, input.dtype, input.sizes, scaled);
  const Extents kept = cpu::rstd_sizes(input, shape);
  Tensor mean = store_result(call, 1, call.result_dtype(1, dtype), kept, moments.mean);
  return Value::tuple({out, mean, store_result(call, 2, call.result_dtype(2, dtype), kept, rstd)});
}

// With h = (x - mean) * rstd and g = grad * weight:
//   d input = rstd * (g - mean(g) - h * mean(g * h)), d weight = column sums of grad * h, d bias = column sums of grad
Value layer_norm_backward(KernelCall& call) {
  const Tensor& input = call.tensor(1);
  const std::int64_t length = cpu::norm_length(input, call[2].integers());
  const DType dtype = floating_dtype(input.dtype);
  const std::vector<Value>& wanted = call[7].items();
  Scratch scratch(call);
  const Tensor grad = norm_matrix(scratch, call.tensor(0), length, dtype),
               x = norm_matrix(scratch, input, length, dtype);
  const Tensor mean = as_matrix(scratch.dense(call.tensor(3), dtype), x.sizes[0], 1),
               rstd = as_matrix(scratch.dense(call.tensor(4), dtype), x.sizes[0], 1);
  const Tensor distances = difference(scratch, x, mean);
  const Tensor h = scratch.map(ElementOp::kMul, {&distances, &rstd});
  std::vector<Value> results(3);
  const auto give = [&](std::size_t i, const Tensor& like, const Tensor& values) {
    results[i] = store_result(call, i, like.dtype, like.sizes, values);
  };
  if (wanted[0].boolean()) {
    const Tensor weight = weight_row(scratch, {call[5], 1.0}, length, dtype);
    const Tensor g = scratch.map(ElementOp::kMul, {&grad, &weight});
    const Tensor products = scratch.map(ElementOp::kMul, {&g, &h});
    const Tensor mean_g = scratch.sum_rows(g, Scratch::Sum::kMean),
                 mean_product = scratch.sum_rows(products, Scratch::Sum::kMean);
    const Tensor along = scratch.map(ElementOp::kMul, {&h, &mean_product});
    const Tensor across = difference(scratch, difference(scratch, g, mean_g), along);
    give(0, input, scratch.map(ElementOp::kMul, {&rstd, &across}));
  }
  if (wanted[1].boolean() && !call[5].is_none())
    give(1, call.tensor(5), scratch.sum_columns(scratch.map(ElementOp::kMul, {&grad, &h})));
  if (wanted[2].boolean() && !call[6].is_none()) give(2, call.tensor(6), scratch.sum_columns(grad));
  return Value::tuple(std::move(results));
}

constexpr KernelRow kRows[] = {
    {"aten.linalg_vector_norm.default", vector_norm},
    {"aten.logsumexp.default", logsumexp},
    {"aten.native_layer_norm.default", layer_norm},
    {"aten.native_layer_norm_backward.default", layer_norm_backward},
    {"aten.prod.default", product},
    {"aten.prod.dim_int", product_along},
    {"aten.std.correction", deviation},
    {"aten.var.correction", variance},
    {"aten.var_mean.correction", variance_and_mean},
};

}  // namespace

std::span<const KernelRow> statistics_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
