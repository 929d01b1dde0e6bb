// Softmax, RMS norm and the loss on the device: sums of rows and elementwise steps, each rounded
// where the CPU's kernel rounds (kernels/host/kernels_normalise.cc).
#include <limits>

#include "replay/kernels/device/kernels.h"
#include "replay/kernels/device/scratch.h"
#include "replay/kernels/host/elements.h"
#include "replay/kernels/ops/normalise_call.h"

namespace epweave::replay::device {
namespace {

using cpu::LossReduction;

// Rows along `dim` of an argument, row-major, in the compute type.
Tensor rows_along(Scratch& scratch, const Tensor& tensor, std::size_t dim, DType dtype) {
  const Tensor dense = scratch.dense(with_dim_last(tensor, dim), dtype);
  const std::int64_t length = tensor.rank() == 0 ? 1 : tensor.sizes[dim];
  return as_matrix(dense, length == 0 ? 0 : dense.numel() / length, length);
}
// The rows back in the shape of `like`, as result 0.
Value store_rows(KernelCall& call, const Tensor& like, std::size_t dim, const Tensor& rows, DType dtype) {
  Tensor out = call.make_result(0, dtype, like.sizes);
  const Tensor moved = with_dim_last(out, dim);
  cpu::copy_elements(rows.view(moved.sizes, contiguous_strides(moved.sizes), rows.offset), moved);
  return out;
}

struct Softmax {
  std::size_t dim;
  DType result, computed;
};
Softmax read_softmax(const KernelCall& call) {
  const Tensor& self = call.tensor(0);
  with_float(self.dtype, [](auto) {});
  return {cpu::checked_dim(call.integer(1), self.rank()), call.boolean(2) ? DType::kFloat32 : self.dtype,
          computed_dtype(self.dtype)};
}
Value softmax(KernelCall& call) {
  const Softmax s = read_softmax(call);
  Scratch scratch(call);
  const Tensor x = rows_along(scratch, call.tensor(0), s.dim, s.computed);
  const Tensor maximum = scratch.maximum_of_rows(x, NanRule::kSkip);
  const Tensor shifted = scratch.map(ElementOp::kSubScaled, {&x, &maximum}, Value(1.0));
  const Tensor e = scratch.map(ElementOp::kExp, {&shifted});
  const Tensor total = scratch.sum_rows(e);
  return store_rows(call, call.tensor(0), s.dim, scratch.map(ElementOp::kDiv, {&e, &total}), s.result);
}
Value log_softmax(KernelCall& call) {
  const Softmax s = read_softmax(call);
  Scratch scratch(call);
  const Tensor x = rows_along(scratch, call.tensor(0), s.dim, s.computed);
  const Tensor maximum = scratch.maximum_of_rows(x, NanRule::kSkip);
  const Tensor shifted = scratch.map(ElementOp::kSubScaled, {&x, &maximum}, Value(1.0));
  const Tensor e = scratch.map(ElementOp::kExp, {&shifted});
  const Tensor total = scratch.sum_rows(e);
  const Tensor log_total = scratch.map(ElementOp::kLogOf, {&total});
  return store_rows(call, call.tensor(0), s.dim,
                    scratch.map(ElementOp::kSubScaled, {&shifted, &log_total}, Value(1.0)), s.result);
}

// What both derivatives begin with: grad and output as rows.
struct SoftmaxBackward {
  std::size_t dim;
  Tensor grad, output;
};
SoftmaxBackward read_backward(KernelCall& call, Scratch& scratch) {
  const Tensor& grad = call.tensor(0);
  const DType dtype = with_float(grad.dtype, [](auto zero) { return dtype_of<decltype(zero)>; });
  const std::size_t dim = cpu::checked_dim(call.integer(2), grad.rank());
  return {dim, rows_along(scratch, grad, dim, dtype), rows_along(scratch, call.tensor(1), dim, dtype)};
}
// (grad - sum(grad * output)) * output
Value softmax_backward(KernelCall& call) {
  Scratch scratch(call);
  const SoftmaxBackward in = read_backward(call, scratch);
  const Tensor product = scratch.map(ElementOp::kMul, {&in.grad, &in.output});
  const Tensor total = scratch.sum_rows(product);
  const Tensor difference = scratch.map(ElementOp::kSubScaled, {&in.grad, &total}, Value(1.0));
  return store_rows(call, call.tensor(0), in.dim, scratch.map(ElementOp::kMul, {&difference, &in.output}),
                    call[3].as<DType>());
}
// grad - exp(output) * sum(grad)
Value log_softmax_backward(KernelCall& call) {
  Scratch scratch(call);
  const SoftmaxBackward in = read_backward(call, scratch);
  const Tensor total = scratch.sum_rows(in.grad);
  const Tensor e = scratch.map(ElementOp::kExp, {&in.output});
  const Tensor product = scratch.map(ElementOp::kMul, {&e, &total});
  return store_rows(call, call.tensor(0), in.dim,
                    scratch.map(ElementOp::kSubScaled, {&in.grad, &product}, Value(1.0)),
                    call[3].as<DType>());
}

// ---- RMS norm -----------------------------------------------------------------------------

Tensor norm_rows(Scratch& scratch, const Tensor& tensor, std::int64_t length, DType dtype) {
  const Tensor dense = scratch.dense(tensor, dtype);
  return as_matrix(dense, length == 0 ? 0 : dense.numel() / length, length);
}
// None: ones.
Tensor norm_weight(Scratch& scratch, const Value& weight, std::int64_t length, DType dtype) {
  if (weight.is_none()) return scratch.filled(dtype, {1, length}, Value(1.0));
  return as_matrix(scratch.dense(weight.tensor(), dtype), 1, length);
}

// (x * rstd) * weight with rstd = 1 / sqrt(mean of squares + eps)
Value rms_norm(KernelCall& call) {
  const Tensor& input = call.tensor(0);
  const Extents shape = call[1].integers();
  const std::int64_t length = cpu::norm_length(input, shape);
  const DType dtype = with_float(input.dtype, [](auto zero) { return dtype_of<decltype(zero)>; });
  const double eps = cpu::norm_epsilon(call[3], input.dtype);
  Scratch scratch(call);
  const Tensor x = norm_rows(scratch, input, length, dtype);
  const Tensor weight = norm_weight(scratch, call[2], length, dtype);
  const Tensor squares = scratch.map(ElementOp::kSquare, {&x});
  const Tensor mean = scratch.sum_rows(squares, Scratch::Sum::kMean);
  const Tensor epsilon = scratch.filled(dtype, {1, 1}, Value(eps));
  const Tensor shifted = scratch.map(ElementOp::kAddScaled, {&mean, &epsilon}, Value(1.0));
  const Tensor rstd = scratch.map(ElementOp::kRsqrt, {&shifted});
  const Tensor normal = scratch.map(ElementOp::kMul, {&x, &rstd});
  Tensor out =
      store_result(call, 0, input.dtype, input.sizes, scratch.map(ElementOp::kMul, {&normal, &weight}));
  Tensor scale = store_result(call, 1, dtype, cpu::rstd_sizes(input, shape), rstd);
  return Value::tuple({out, scale});
}

// With h = x * rstd and g = grad * weight:
//   d input = rstd * (g - h * mean(g * h)),   d weight = the column sums of grad * h
Value rms_norm_backward(KernelCall& call) {
  const Tensor& input = call.tensor(1);
  const std::int64_t length = cpu::norm_length(input, call[2].integers());
  const DType dtype = with_float(input.dtype, [](auto zero) { return dtype_of<decltype(zero)>; });
  const std::vector<Value>& mask = call[5].items();
  Scratch scratch(call);
  const Tensor grad = norm_rows(scratch, call.tensor(0), length, dtype);
  const Tensor x = norm_rows(scratch, input, length, dtype);
  const Tensor rstd = as_matrix(scratch.dense(call.tensor(3), dtype), x.sizes[0], 1);
  const Tensor weight = norm_weight(scratch, call[4], length, dtype);
  const Tensor h = scratch.map(ElementOp::kMul, {&x, &rstd});
  std::vector<Value> results(2);
  if (mask[0].boolean()) {
    const Tensor scaled = scratch.map(ElementOp::kMul, {&grad, &weight});
    const Tensor products = scratch.map(ElementOp::kMul, {&scaled, &h});
    const Tensor mean = scratch.sum_rows(products, Scratch::Sum::kMean);
    const Tensor along = scratch.map(ElementOp::kMul, {&h, &mean});
    const Tensor across = scratch.map(ElementOp::kSubScaled, {&scaled, &along}, Value(1.0));
    results[0] =
        store_result(call, 0, input.dtype, input.sizes, scratch.map(ElementOp::kMul, {&rstd, &across}));
  }
  if (mask[1].boolean() && !call[4].is_none()) {
    const Tensor products = scratch.map(ElementOp::kMul, {&grad, &h});
    results[1] =
        store_result(call, 1, call.tensor(4).dtype, call.tensor(4).sizes, scratch.sum_columns(products));
  }
  return Value::tuple(std::move(results));
}

// ---- negative log likelihood --------------------------------------------------------------

struct Loss : cpu::LossShape {
  DType dtype = DType::kFloat32;
  Tensor targets;                // int64
  std::optional<Tensor> weight;  // computed
};
Loss read_loss(Scratch& scratch, const Tensor& self, const Tensor& target, const Value& weight) {
  Loss loss{cpu::read_loss_shape(self, target), DType::kFloat32, {}, {}};
  loss.dtype = with_float(self.dtype, [](auto zero) { return dtype_of<decltype(zero)>; });
  loss.targets = scratch.dense(target, DType::kInt64);
  if (!weight.is_none()) loss.weight = scratch.dense(weight.tensor(), loss.dtype);
  return loss;
}

Value nll_loss(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  Scratch scratch(call);
  const Loss loss = read_loss(scratch, self, call.tensor(1), call[2]);
  const auto reduction = static_cast<LossReduction>(call.integer(3));
  const Tensor x = scratch.dense(self, loss.dtype);
  const Tensor losses = scratch.make(loss.dtype, {1, loss.rows}),
               weights = scratch.make(loss.dtype, {1, loss.rows});
  with_float(self.dtype, [&](auto zero) {
    using C = decltype(zero);
    scratch.launcher().launch(LossTask<C>{x.data<C>(), loss.weight ? loss.weight->data<C>() : nullptr,
                                          loss.targets.data<std::int64_t>(), loss.classes, call.integer(4),
                                          losses.data<C>(), weights.data<C>(), scratch.launcher().sink()},
                              loss.rows,
                              {&x, loss.weight ? &*loss.weight : nullptr, &loss.targets, &losses, &weights});
  });
  if (reduction == LossReduction::kNone && self.rank() == 2) {
    Tensor out = store_result(call, 0, self.dtype, {loss.rows}, losses);
    return Value::tuple(
        {out, store_result(call, 1, self.dtype, {}, scratch.filled(loss.dtype, {}, Value(0.0)))});
  }
  const Tensor weight_total = scratch.sum_rows(weights), total = scratch.sum_rows(losses);
  Tensor out = store_result(
      call, 0, self.dtype, {},
      reduction == LossReduction::kMean ? scratch.map(ElementOp::kDiv, {&total, &weight_total}) : total);
  return Value::tuple({out, store_result(call, 1, self.dtype, {}, weight_total)});
}

Value nll_loss_backward(KernelCall& call) {
  const Tensor& self = call.tensor(1);
  Scratch scratch(call);
  const Loss loss = read_loss(scratch, self, call.tensor(2), call[3]);
  const bool is_mean = static_cast<LossReduction>(call.integer(4)) == LossReduction::kMean;
  const Tensor grad = scratch.dense(call.tensor(0), loss.dtype),
               total = scratch.dense(call.tensor(6), loss.dtype);
  const Tensor out = scratch.filled(loss.dtype, self.sizes, Value(0.0));
  with_float(self.dtype, [&](auto zero) {
    using C = decltype(zero);
    scratch.launcher().launch(
        LossBackwardTask<C>{grad.data<C>(), grad.numel() == 1 ? 0 : 1,
                            loss.weight ? loss.weight->data<C>() : nullptr,
                            is_mean ? total.data<C>() : nullptr, loss.targets.data<std::int64_t>(),
                            loss.classes, call.integer(5), out.data<C>(), scratch.launcher().sink()},
        loss.rows, {&grad, &total, loss.weight ? &*loss.weight : nullptr, &loss.targets, &out});
  });
  return store_result(call, 0, self.dtype, self.sizes, out);
}

constexpr KernelRow kRows[] = {
    {"aten._fused_rms_norm.default", rms_norm},
    {"aten._fused_rms_norm_backward.default", rms_norm_backward},
    {"aten._log_softmax.default", log_softmax},
    {"aten._log_softmax_backward_data.default", log_softmax_backward},
    {"aten._softmax.default", softmax},
    {"aten._softmax_backward_data.default", softmax_backward},
    {"aten.nll_loss_backward.default", nll_loss_backward},
    {"aten.nll_loss_forward.default", nll_loss},
};

}  // namespace

std::span<const KernelRow> normalise_rows() {
  return kRows;
}

}  // namespace epweave::replay::device
