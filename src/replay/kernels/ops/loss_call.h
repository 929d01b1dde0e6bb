// Losses of predictions against targets: a term for each element, rounded to the operands' dtype as
// torch does; then all terms (reduction 0), their mean (1) or their sum (2), as aten.mean and
// aten.sum make them.
//
//   {"aten.mse_loss.default", loss<SquaredDifference, total_of>}      total_of: the CPU's sum, or a device's
//
// The derivative is scale * slope * grad, the slope not rounded to 16 bits; of a mean the scale is
// 1 / terms.
#pragma once

#include <optional>

#include "replay/kernels/host/map_ops.h"

namespace epweave::replay::cpu {

enum class Total : std::uint8_t { kMean, kSum };
// The call's result: one number of all terms.
using TotalOf = Value (*)(KernelCall& call, const Tensor& terms, Total total);

enum class Reduction : std::uint8_t { kNone, kMean, kSum };
inline Reduction reduction_of(const KernelCall& call) {
  const std::int64_t number = call.integer(*call.op().find_param("reduction"));
  if (number < 0 || number > 2) throw KernelError("reduction is 0, 1 or 2, not " + std::to_string(number));
  return static_cast<Reduction>(number);
}

// A prediction and its target in one dtype, and where the terms go.
struct LossOperands {
  DType dtype;
  Tensor self, target, terms;
};
// Terms are stored in the dtype of both, or in `stored`.
inline LossOperands loss_operands(KernelCall& call, std::optional<DType> stored = std::nullopt) {
  LossOperands loss{promoted_dtype(call, {0, 1}), {}, {}, {}};
  loss.self = operand(call, 0, loss.dtype);
  loss.target = operand(call, 1, loss.dtype);
  const std::vector<const Tensor*> both{&loss.self, &loss.target};
  const DType dtype = stored.value_or(loss.dtype);
  loss.terms = reduction_of(call) == Reduction::kNone ? call.make_result(0, dtype, broadcast_sizes(both))
                                                      : call.make(dtype, broadcast_sizes(both));
  return loss;
}
template <TotalOf total_of>
Value reduce_terms(KernelCall& call, const LossOperands& loss) {
  const Reduction reduction = reduction_of(call);
  if (reduction == Reduction::kNone) return loss.terms;
  return total_of(call, loss.terms, reduction == Reduction::kMean ? Total::kMean : Total::kSum);
}
inline void weigh_terms(KernelCall& call, const LossOperands& loss, const Value& weight) {
  if (weight.is_none()) return;
  map_op<Mul, 2>(call, loss.dtype, loss.terms, {&loss.terms, &weight.tensor()});
}

template <class Term, TotalOf total_of>
Value loss(KernelCall& call) {
  const LossOperands loss = loss_operands(call);
  map_op<Term, 2>(call, loss.dtype, loss.terms, {&loss.self, &loss.target});
  return reduce_terms<total_of>(call, loss);
}
// (self, target, reduction, number)
template <class Term, TotalOf total_of>
Value loss_of_number(KernelCall& call) {
  const LossOperands loss = loss_operands(call);
  map_op<Term, 2>(call, loss.dtype, loss.terms, {&loss.self, &loss.target}, call[3]);
  return reduce_terms<total_of>(call, loss);
}
// (self, target, weight, reduction)
template <TotalOf total_of>
Value binary_cross_entropy(KernelCall& call) {
  const LossOperands loss = loss_operands(call);
  map_op<CrossEntropy, 2>(call, loss.dtype, loss.terms, {&loss.self, &loss.target});
  weigh_terms(call, loss, call[2]);
  return reduce_terms<total_of>(call, loss);
}
// (self, target, weight, pos_weight, reduction): torch writes the terms over 1 - target.
template <TotalOf total_of>
Value binary_cross_entropy_with_logits(KernelCall& call) {
  const LossOperands loss = loss_operands(call, call.tensor(1).dtype);
  const Tensor weight =
      call[3].is_none() ? number_tensor(call, Value(1.0), loss.dtype) : operand(call, 3, loss.dtype);
  map_op<LogitsCrossEntropy, 3>(call, loss.dtype, loss.terms, {&loss.self, &loss.target, &weight});
  weigh_terms(call, loss, call[2]);
  return reduce_terms<total_of>(call, loss);
}

// (grad_output, self, target, ...): scale * slope * grad_output, of the slopes in `slope`.
inline Value scale_slopes(KernelCall& call, DType dtype, const Tensor& slope, double scale) {
  const Tensor grad = operand(call, 0, dtype);
  const Tensor out = result_like(call, dtype, {&grad, &slope});
  if (reduction_of(call) == Reduction::kMean) scale = scale / static_cast<double>(slope.numel());
  map_op<ScaledProduct, 2>(call, dtype, out, {&slope, &grad}, Value(scale));
  return out;
}
// Which of the arguments (grad_output, self, target, reduction, number) the slope takes.
enum class Number : std::uint8_t { kNone, kFifth };
template <class Slope, Number number, int scale>
Value loss_backward(KernelCall& call) {
  const DType dtype = promoted_dtype(call, {0, 1, 2});
  const Tensor self = operand(call, 1, dtype), target = operand(call, 2, dtype);
  const std::vector<const Tensor*> both{&self, &target};
  const Tensor slope = call.make(number_tensor(call, Value(1.0), dtype).dtype, broadcast_sizes(both));
  map_op<Slope, 2>(call, slope.dtype, slope, {&self, &target}, number == Number::kFifth ? call[4] : Value());
  return scale_slopes(call, dtype, slope, scale);
}
// (grad_output, self, target, weight, reduction)
inline Value binary_cross_entropy_backward(KernelCall& call) {
  const Tensor &self = call.tensor(1), &target = call.tensor(2);
  const Tensor slope = call.make(number_tensor(call, Value(1.0), self.dtype).dtype, self.sizes);
  map_op<CrossEntropySlope, 2>(call, slope.dtype, slope, {&self, &target});
  if (!call[3].is_none()) map_op<Mul, 2>(call, slope.dtype, slope, {&slope, &call.tensor(3)});
  return scale_slopes(call, self.dtype, slope, 1);
}

template <TotalOf total_of>
constexpr KernelRow kLossRows[] = {
    {"aten.binary_cross_entropy.default", binary_cross_entropy<total_of>},
    {"aten.binary_cross_entropy_backward.default", binary_cross_entropy_backward},
    {"aten.binary_cross_entropy_with_logits.default", binary_cross_entropy_with_logits<total_of>},
    {"aten.huber_loss.default", loss_of_number<Huber, total_of>},
    {"aten.huber_loss_backward.default", loss_backward<HuberSlope, Number::kFifth, 1>},
    {"aten.mse_loss.default", loss<SquaredDifference, total_of>},
    {"aten.mse_loss_backward.default", loss_backward<Difference, Number::kNone, 2>},
    {"aten.smooth_l1_loss.default", loss_of_number<SmoothL1, total_of>},
    {"aten.smooth_l1_loss_backward.default", loss_backward<SmoothL1Slope, Number::kFifth, 1>},
};

}  // namespace epweave::replay::cpu
