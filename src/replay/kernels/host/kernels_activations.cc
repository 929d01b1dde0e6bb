// Elementary functions and activations beyond the common ones (math/special_functions.h), and their
// derivatives.
#include <limits>

#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/map_ops.h"

namespace epweave::replay::cpu {
namespace {

// An op of the argument and of the numbers at `params`, in the dtype of the argument.
template <class Op, std::size_t N, class Where = Fresh>
Value of_numbers(KernelCall& call, const std::array<std::size_t, N>& params, const Value& number = Value()) {
  const Tensor& self = call.tensor(0);
  std::array<Tensor, N> numbers;
  std::array<const Tensor*, N + 1> in{&self};
  for (std::size_t i = 0; i < N; ++i) {
    numbers[i] = operand(call, params[i], self.dtype);
    in[i + 1] = &numbers[i];
  }
  const Tensor out = Where::target(call, self.dtype, {&self});
  map_op<Op, N + 1>(call, self.dtype, out, in, number);
  return out;
}

// A derivative of (grad, self, first, second): `first` is the op's number.
template <class Op>
Value backward_of_numbers(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor grad = operand(call, 0, common), self = operand(call, 1, common),
               second = operand(call, 3, common);
  const Tensor out = result_like(call, common, {&grad, &self});
  map_op<Op, 3>(call, common, out, {&grad, &self, &second}, call[2]);
  return out;
}

bool is_approximate(const Value& approximate) {
  const std::string& text = approximate.as<Text>().text;
  if (text != "none" && text != "tanh") throw KernelError("gelu: approximate is none or tanh, not " + text);
  return text == "tanh";
}
Value gelu(KernelCall& call) {
  return is_approximate(call[1]) ? unary<GeluTanh>(call) : unary<Gelu>(call);
}
template <class Op>
Value of_two(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor grad = operand(call, 0, common), self = operand(call, 1, common);
  const Tensor out = result_like(call, common, {&grad, &self});
  map_op<Op, 2>(call, common, out, {&grad, &self});
  return out;
}
Value gelu_backward(KernelCall& call) {
  return is_approximate(call[2]) ? of_two<GeluTanhBackward>(call) : of_two<GeluBackward>(call);
}

// The second result is what torch's CPU kernel saves for its derivative; on a GPU it is empty. Ours
// needs it nowhere.
Value log_sigmoid(KernelCall& call) {
  const Value out = unary<LogSigmoid>(call);
  const Tensor& self = call.tensor(0);
  const ResultType* saved = call.is_nested() ? nullptr : call.result(1);
  if (saved == nullptr || saved->sizes != self.sizes)
    return Value::tuple({out, call.make_result(1, self.dtype, {0})});
  const Tensor buffer = call.make_result(1, self.dtype, self.sizes);
  const Tensor magnitude = call.make(self.dtype, self.sizes), negative = call.make(self.dtype, self.sizes);
  map_op<Abs, 1>(call, self.dtype, magnitude, {&self});
  map_op<Neg, 1>(call, self.dtype, negative, {&magnitude});
  map_op<Exp, 1>(call, self.dtype, buffer, {&negative});
  return Value::tuple({out, buffer});
}
Value log_sigmoid_backward(KernelCall& call) {
  return of_two<LogSigmoidBackward>(call);
}

Value softplus(KernelCall& call) {
  return of_numbers<Softplus, 2>(call, {1, 2});
}
template <class Where>
Value hardtanh(KernelCall& call) {
  return of_numbers<Clamp, 2, Where>(call, {1, 2});
}
template <class Where>
Value leaky_relu(KernelCall& call) {
  return of_numbers<LeakyRelu, 0, Where>(call, {}, call[1]);
}

// elu(self, alpha, scale, input_scale).
Value elu(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Tensor below = number_tensor(call, call.real(1) * call.real(2), self.dtype),
               above = number_tensor(call, call[2], self.dtype);
  const Tensor out = result_like(call, self.dtype, {&self});
  map_op<Elu, 3>(call, self.dtype, out, {&self, &below, &above}, call[3]);
  return out;
}

// elu_backward(grad, alpha, scale, input_scale, is_result, self_or_result).
Value elu_backward(KernelCall& call) {
  const Tensor &grad = call.tensor(0), &at = call.tensor(5);
  const Tensor below = number_tensor(call, call.real(1) * call.real(2), at.dtype),
               above = number_tensor(call, call[2], at.dtype);
  const Tensor slope = call.make(below.dtype, at.sizes);  // not rounded to 16 bits
  if (call.boolean(4))
    map_op<EluSlopeOfResult, 3>(call, slope.dtype, slope, {&at, &below, &above}, call[3]);
  else
    map_op<EluSlope, 3>(call, slope.dtype, slope, {&at, &below, &above}, call[3]);
  const Tensor out = result_like(call, grad.dtype, {&grad, &at});
  map_op<Mul, 2>(call, grad.dtype, out, {&grad, &slope});
  return out;
}

// The sign of x is that of its result.
Value leaky_relu_backward(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor grad = operand(call, 0, common), self = operand(call, 1, common);
  const Tensor out = result_like(call, common, {&grad, &self});
  map_op<LeakyReluBackward, 2>(call, common, out, {&grad, &self}, call[2]);
  return out;
}

// Both halves of a dimension.
struct Halves {
  Tensor first, second;
};
Halves halves_of(const Tensor& tensor, std::int64_t dim_param) {
  const std::size_t dim = checked_dim(dim_param, tensor.rank());
  if (dim >= tensor.rank() || tensor.sizes[dim] % 2 != 0) throw KernelError("the dimension has no halves");
  Extents sizes = tensor.sizes;
  sizes[dim] /= 2;
  const std::int64_t offset = tensor.numel() == 0 ? 0 : sizes[dim] * tensor.strides[dim];
  return {tensor.view(sizes, tensor.strides, tensor.offset),
          tensor.view(sizes, tensor.strides, tensor.offset + offset)};
}
Value glu(KernelCall& call) {
  const DType dtype = call.tensor(0).dtype;
  const auto [x, gate] = halves_of(call.tensor(0), call.integer(1));
  const Tensor out = result_like(call, dtype, {&x, &gate});
  map_op<Glu, 2>(call, dtype, out, {&x, &gate});
  return out;
}
// (grad_output, self, dim)
Value glu_backward(KernelCall& call) {
  const Tensor &grad = call.tensor(0), &self = call.tensor(1);
  const auto [x, gate] = halves_of(self, call.integer(2));
  const Tensor out = call.make_result(0, self.dtype, self.sizes);
  const auto [of_x, of_gate] = halves_of(out, call.integer(2));
  map_op<Glu, 2>(call, self.dtype, of_x, {&grad, &gate});
  map_op<GluBackward, 3>(call, self.dtype, of_gate, {&grad, &x, &gate});
  return out;
}

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 65504.0;
    case DType::kBfloat16:
      return 3.3895313892515355e38;
    case DType::kFloat64:
      return std::numeric_limits<double>::max();
    default:
      return static_cast<double>(std::numeric_limits<float>::max());
  }
}
Value nan_to_num(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const double largest = largest_of(self.dtype);
  const Tensor high = number_tensor(call, call[2].is_none() ? Value(largest) : call[2], self.dtype),
               low = number_tensor(call, call[3].is_none() ? Value(-largest) : call[3], self.dtype);
  const Tensor out = result_like(call, self.dtype, {&self});
  map_op<ReplaceNan, 3>(call, self.dtype, out, {&self, &high, &low},
                        call[1].is_none() ? Value(0.0) : call[1]);
  return out;
}

Value atan2(KernelCall& call) {
  return binary_as<Atan2, Fresh>(call, to_float(promoted_dtype(call, {0, 1})));
}
Value make_complex(KernelCall& call) {
  return binary_as<MakeComplex, Fresh>(call, DType::kComplex64);
}

// abs (cos(angle) + i sin(angle)).
Value polar(KernelCall& call) {
  const Tensor magnitude = operand(call, 0, DType::kFloat32), angle = operand(call, 1, DType::kFloat32);
  const Tensor out = result_like(call, DType::kComplex64, {&magnitude, &angle});
  const Tensor real = call.make(DType::kFloat32, out.sizes),
               imaginary = call.make(DType::kFloat32, out.sizes);
  map_op<Cos, 1>(call, DType::kFloat32, real, {&angle});
  map_op<Mul, 2>(call, DType::kFloat32, real, {&magnitude, &real});
  map_op<Sin, 1>(call, DType::kFloat32, imaginary, {&angle});
  map_op<Mul, 2>(call, DType::kFloat32, imaginary, {&magnitude, &imaginary});
  map_op<MakeComplex, 2>(call, DType::kComplex64, out, {&real, &imaginary});
  return out;
}

// (grad * mask) * scale.
Value dropout_backward(KernelCall& call) {
  const Tensor &grad = call.tensor(0), &mask = call.tensor(1);
  const Tensor out = result_like(call, grad.dtype, {&grad, &mask}),
               scale = number_tensor(call, call[2], grad.dtype);
  map_op<Mul, 2>(call, grad.dtype, out, {&grad, &mask});
  map_op<Mul, 2>(call, grad.dtype, out, {&out, &scale});
  return out;
}

constexpr KernelRow kRows[] = {
    {"aten.atan2.default", atan2},
    {"aten.complex.default", make_complex},
    {"aten.elu.default", elu},
    {"aten.elu_backward.default", elu_backward},
    {"aten.erf.default", unary_float<Erf>},
    {"aten.exp2.default", unary_float<Exp2>},
    {"aten.expm1.default", unary_float<Expm1>},
    {"aten.gelu.default", gelu},
    {"aten.gelu_backward.default", gelu_backward},
    {"aten.glu.default", glu},
    {"aten.glu_backward.default", glu_backward},
    {"aten.hardsigmoid.default", unary<Hardsigmoid>},
    {"aten.hardsigmoid_backward.default", of_two<HardsigmoidBackward>},
    {"aten.hardswish.default", unary<Hardswish>},
    {"aten.hardswish_.default", unary<Hardswish, InPlace>},
    {"aten.hardswish_backward.default", of_two<HardswishBackward>},
    {"aten.hardtanh.default", hardtanh<Fresh>},
    {"aten.hardtanh_.default", hardtanh<InPlace>},
    {"aten.hardtanh_backward.default", backward_of_numbers<HardtanhBackward>},
    {"aten.leaky_relu.default", leaky_relu<Fresh>},
    {"aten.leaky_relu_.default", leaky_relu<InPlace>},
    {"aten.leaky_relu_backward.default", leaky_relu_backward},
    {"aten.log1p.default", unary_float<Log1p>},
    {"aten.log2.default", unary_float<Log2>},
    {"aten.log_sigmoid_backward.default", log_sigmoid_backward},
    {"aten.log_sigmoid_forward.default", log_sigmoid},
    {"aten.logaddexp.default", of_two<LogAddExp>},
    {"aten.mish.default", unary<Mish>},
    {"aten.mish_.default", unary<Mish, InPlace>},
    {"aten.mish_backward.default", of_two<MishBackward>},
    {"aten.nan_to_num.default", nan_to_num},
    {"aten.native_dropout_backward.default", dropout_backward},
    {"aten.polar.default", polar},
    {"aten.softplus.default", softplus},
    {"aten.softplus_backward.default", backward_of_numbers<SoftplusBackward>},
};

}  // namespace

std::span<const KernelRow> activation_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
