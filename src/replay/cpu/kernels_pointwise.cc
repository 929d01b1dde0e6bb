// Ops that map each element: arithmetic, comparisons, bitwise, where, activations and their derivatives.
// What each computes is in math/element_ops.h; here are its operands, its result and the loop. The same
// functions serve a device: where the result is in a device's memory the op goes into its queue.
#include <tuple>

#include "ir/promotion.h"
#include "replay/cpu/kernels.h"
#include "replay/cpu/operands.h"
#include "replay/cpu/vector_math.h"
#include "replay/math/element_ops.h"
#include "replay/queue.h"

namespace epweave::replay::cpu {
namespace {

[[noreturn]] void refuse(const KernelCall& call, DType dtype) {
  throw KernelError(std::string(call.op().target) + " is not defined for " + std::string(info(dtype).name));
}

using namespace math;  // NOLINT: the ops

// ---- drivers ------------------------------------------------------------------------------

Tensor result_like(KernelCall& call, DType dtype, std::initializer_list<const Tensor*> inputs) {
  const std::vector<const Tensor*> all(inputs);
  return call.make_result(0, dtype, broadcast_sizes(all));
}

// Where the result goes: a new tensor, or the first argument.
struct Fresh {
  static Tensor target(KernelCall& call, DType dtype, std::initializer_list<const Tensor*> inputs) {
    return result_like(call, dtype, inputs);
  }
};
struct InPlace {
  static Tensor target(KernelCall& call, DType, std::initializer_list<const Tensor*>) {
    return call.tensor(0);
  }
};

// Ops with a vector form for float (vector_math.h).
template <class Op>
constexpr bool HasRun = std::is_same_v<Op, Exp> || std::is_same_v<Op, Sigmoid> || std::is_same_v<Op, Silu> ||
                        std::is_same_v<Op, SiluBackward>;
template <class Op, class... In>
void run(std::int64_t n, float* to, In... from) {
  if constexpr (std::is_same_v<Op, Exp>)
    exp_run(n, to, from...);
  else if constexpr (std::is_same_v<Op, Sigmoid>)
    sigmoid_run(n, to, from...);
  else if constexpr (std::is_same_v<Op, Silu>)
    silu_run(n, to, from...);
  else
    silu_backward_run(n, to, from...);
}
template <class Op, class C, std::size_t N>
constexpr bool IsTest = N == 1 ? requires(C x) {
  Op::test(x);
} : requires(C x) {
  Op::test(x, x);
};

template <class Op, class C, std::size_t N>
void map_on_cpu(const Tensor& out, const std::array<const Tensor*, N>& in, const Value& number) {
  if constexpr (std::is_same_v<C, float> && HasRun<Op>) {
    map_runs<C, C, N>(out, in, [](std::int64_t n, float* to, auto... from) { run<Op>(n, to, from...); });
  } else {
    const C scalar = number.is_none() ? C(0) : number_as<C>(number);
    using R = std::conditional_t<IsTest<Op, C, N>, std::int64_t, C>;
    map_elements<C, R, N>(out, in, [&](auto... x) -> R {
      if constexpr (Op::divides && is_int<C>)
        if (std::get<1>(std::tuple(x...)) == 0) throw KernelError("integer division by zero");
      if constexpr (requires { Op::test(x...); })
        return Op::test(x...) ? 1 : 0;
      else if constexpr (requires { Op::apply(x...); })
        return Op::apply(x...);
      else
        return Op::apply(scalar, x...);
    });
  }
}

// out[i] = Op of the inputs' elements, computed in the compute type of `common`, on the device of `out`.
template <class Op, std::size_t N>
void map_op(const KernelCall& call, DType common, const Tensor& out, const std::array<const Tensor*, N>& in,
            const Value& number = Value()) {
  with_compute(common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    if constexpr (!Op::template allows<C>) {
      refuse(call, common);
    } else if (Queue* queue = out.storage->queue(); queue != nullptr) {
      MapRequest request{code_of<Op>, common, out, {}, N, number};
      std::copy(in.begin(), in.end(), request.in.begin());
      queue->map(request);
    } else {
      map_on_cpu<Op, C>(out, in, number);
    }
  });
}

template <class Op, class Where>
Value binary_as(KernelCall& call, DType common) {
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common);
  const Tensor out = Where::target(call, common, {&a, &b});
  map_op<Op, 2>(call, common, out, {&a, &b});
  return out;
}
template <class Op, class Where = Fresh>
Value binary(KernelCall& call) {
  return binary_as<Op, Where>(call, promoted_dtype(call, {0, 1}));
}
template <class Where = Fresh>
Value divide(KernelCall& call) {
  return binary_as<Div, Where>(call, to_float(promoted_dtype(call, {0, 1})));
}
// rounding_mode: None, "floor" or "trunc".
Value divide_with_mode(KernelCall& call) {
  if (call[2].is_none()) return divide<>(call);
  if (call[2].as<Text>().text == "floor") return binary<FloorDiv>(call);
  return binary<TruncDiv>(call);
}

// a + alpha * b and its relatives.
template <class Op, class Where = Fresh>
Value scaled(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common);
  const Tensor out = Where::target(call, common, {&a, &b});
  map_op<Op, 2>(call, common, out, {&a, &b}, call[2]);
  return out;
}

template <class Op, class Where = Fresh>
Value compare(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common);
  const Tensor out = Where::target(call, DType::kBool, {&a, &b});
  map_op<Op, 2>(call, common, out, {&a, &b});
  return out;
}

// value * t1 * t2 or value * t1 / t2, added to self.
template <class Op, class Where>
Value add_product(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1, 2});
  const Tensor self = operand(call, 0, common), a = operand(call, 1, common), b = operand(call, 2, common);
  const Tensor out = Where::target(call, common, {&self, &a, &b});
  map_op<Op, 3>(call, common, out, {&self, &a, &b}, call[3]);
  return out;
}

template <class Where>
Value lerp(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common), w = operand(call, 2, common);
  const Tensor out = Where::target(call, common, {&a, &b, &w});
  map_op<Lerp, 3>(call, common, out, {&a, &b, &w});
  return out;
}

// ---- one operand --------------------------------------------------------------------------

template <class Op, class Where>
Value unary_as(KernelCall& call, DType common) {
  const Tensor a = operand(call, 0, common);
  const Tensor out = Where::target(call, common, {&a});
  map_op<Op, 1>(call, common, out, {&a});
  return out;
}
template <class Op, class Where = Fresh>
Value unary(KernelCall& call) {
  return unary_as<Op, Where>(call, call.tensor(0).dtype);
}
// Integers become float32.
template <class Op, class Where = Fresh>
Value unary_float(KernelCall& call) {
  return unary_as<Op, Where>(call, to_float(call.tensor(0).dtype));
}
template <class Op>
Value test_each(KernelCall& call) {
  const Tensor& a = call.tensor(0);
  const Tensor out = result_like(call, DType::kBool, {&a});
  map_op<Op, 1>(call, a.dtype, out, {&a});
  return out;
}

Value bitwise_not(KernelCall& call) {
  const Tensor& a = call.tensor(0);
  if (a.dtype == DType::kBool) return test_each<LogicalNot>(call);
  const Tensor out = result_like(call, a.dtype, {&a});
  map_op<BitNot, 1>(call, a.dtype, out, {&a});
  return out;
}

// A derivative from the gradient and what was saved; some take a number (the third argument).
template <class Op>
Value backward_of(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor grad = operand(call, 0, common), saved = operand(call, 1, common);
  const Tensor out = result_like(call, common, {&grad, &saved});
  map_op<Op, 2>(call, common, out, {&grad, &saved}, call.size() > 2 ? call[2] : Value());
  return out;
}

// ---- selection ----------------------------------------------------------------------------

// condition, a, b: the condition is a tensor of bool.
Value select_elements(KernelCall& call, const std::array<const Tensor*, 3>& in, const Tensor& out) {
  map_op<Select, 3>(call, out.dtype, out, in);
  return out;
}
Value where(KernelCall& call) {
  const DType common = promoted_dtype(call, {1, 2});
  const Tensor a = operand(call, 1, common), b = operand(call, 2, common);
  const Tensor& condition = call.tensor(0);
  return select_elements(call, {&condition, &a, &b}, result_like(call, common, {&condition, &a, &b}));
}
template <class Where>
Value masked_fill(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Tensor& mask = call.tensor(1);
  const Tensor value = operand(call, 2, self.dtype);
  const Tensor out = Where::target(call, self.dtype, {&self, &mask});
  return select_elements(call, {&mask, &value, &self}, out);
}

// Bounds may be None. NaN stays; a NaN bound wins.
template <class Where>
Value clamp(KernelCall& call) {
  const bool has_low = !call[1].is_none(), has_high = !call[2].is_none();
  if (!has_low && !has_high) throw KernelError("clamp: at least one bound");
  const DType common = has_low && has_high ? promoted_dtype(call, {0, 1, 2})
                       : has_low           ? promoted_dtype(call, {0, 1})
                                           : promoted_dtype(call, {0, 2});
  const Tensor self = operand(call, 0, common), bound = operand(call, has_low ? 1 : 2, common);
  if (!has_low || !has_high) {
    const Tensor out = Where::target(call, common, {&self, &bound});
    if (has_low)
      map_op<Maximum, 2>(call, common, out, {&self, &bound});
    else
      map_op<Minimum, 2>(call, common, out, {&self, &bound});
    return out;
  }
  const Tensor high = operand(call, 2, common);
  const Tensor out = Where::target(call, common, {&self, &bound, &high});
  map_op<Clamp, 3>(call, common, out, {&self, &bound, &high});
  return out;
}

Value pow_number(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  if (compute_of(common) == Compute::kInt) {
    if (call.integer(1) < 0) throw KernelError("integers to negative powers are not allowed");
  } else if (!has_power(call.real(1))) {
    throw KernelError("portable math has powers -2, -1, -0.5, 0, 0.5, 1, 2 and 3, not " +
                      std::to_string(call.real(1)));
  }
  const Tensor a = operand(call, 0, common);
  const Tensor out = result_like(call, common, {&a});
  map_op<Power, 1>(call, common, out, {&a}, call[1]);
  return out;
}

constexpr KernelRow kRows[] = {
    {"aten.__and__.Tensor", binary<BitAnd>},
    {"aten.__lshift__.Scalar", binary<ShiftLeft>},
    {"aten.__or__.Tensor", binary<BitOr>},
    {"aten.__rshift__.Scalar", binary<ShiftRight>},
    {"aten._conj.default", unary<Conjugate>},  // a copy: tensors here have no lazy conjugation
    {"aten.abs.default", unary<Abs>},
    {"aten.add.Scalar", scaled<AddScaled, Fresh>},
    {"aten.add.Tensor", scaled<AddScaled, Fresh>},
    {"aten.add_.Scalar", scaled<AddScaled, InPlace>},
    {"aten.add_.Tensor", scaled<AddScaled, InPlace>},
    {"aten.addcdiv.default", add_product<AddQuotient, Fresh>},
    {"aten.addcdiv_.default", add_product<AddQuotient, InPlace>},
    {"aten.addcmul.default", add_product<AddProduct, Fresh>},
    {"aten.addcmul_.default", add_product<AddProduct, InPlace>},
    {"aten.bitwise_and.Scalar", binary<BitAnd>},
    {"aten.bitwise_and.Tensor", binary<BitAnd>},
    {"aten.bitwise_and_.Tensor", binary<BitAnd, InPlace>},
    {"aten.bitwise_left_shift.Tensor", binary<ShiftLeft>},
    {"aten.bitwise_not.default", bitwise_not},
    {"aten.bitwise_or.Scalar", binary<BitOr>},
    {"aten.bitwise_or.Tensor", binary<BitOr>},
    {"aten.bitwise_or_.Tensor", binary<BitOr, InPlace>},
    {"aten.bitwise_right_shift.Tensor", binary<ShiftRight>},
    {"aten.bitwise_xor.Tensor", binary<BitXor>},
    {"aten.ceil.default", unary<Ceil>},
    {"aten.clamp.Tensor", clamp<Fresh>},
    {"aten.clamp.default", clamp<Fresh>},
    {"aten.clamp_.default", clamp<InPlace>},
    {"aten.clamp_max.Tensor", binary<Minimum>},
    {"aten.clamp_max.default", binary<Minimum>},
    {"aten.clamp_min.Tensor", binary<Maximum>},
    {"aten.clamp_min.default", binary<Maximum>},
    {"aten.conj_physical.default", unary<Conjugate>},
    {"aten.cos.default", unary_float<Cos>},
    {"aten.div.Scalar", divide<>},
    {"aten.div.Scalar_mode", divide_with_mode},
    {"aten.div.Tensor", divide<>},
    {"aten.div.Tensor_mode", divide_with_mode},
    {"aten.div_.Scalar", divide<InPlace>},
    {"aten.div_.Tensor", divide<InPlace>},
    {"aten.eq.Scalar", compare<Equal>},
    {"aten.eq.Tensor", compare<Equal>},
    {"aten.exp.default", unary_float<Exp>},
    {"aten.exp_.default", unary_float<Exp, InPlace>},
    {"aten.floor.default", unary<Floor>},
    {"aten.floor_divide.Scalar", binary<FloorDiv>},
    {"aten.floor_divide.default", binary<FloorDiv>},
    {"aten.fmod.Scalar", binary<Fmod>},
    {"aten.fmod.Tensor", binary<Fmod>},
    {"aten.ge.Scalar", compare<GreaterEqual>},
    {"aten.ge.Tensor", compare<GreaterEqual>},
    {"aten.gt.Scalar", compare<Greater>},
    {"aten.gt.Tensor", compare<Greater>},
    {"aten.isinf.default", test_each<IsInf>},
    {"aten.isnan.default", test_each<IsNan>},
    {"aten.le.Scalar", compare<LessEqual>},
    {"aten.le.Tensor", compare<LessEqual>},
    {"aten.lerp.Scalar", lerp<Fresh>},
    {"aten.lerp.Tensor", lerp<Fresh>},
    {"aten.lerp_.Scalar", lerp<InPlace>},
    {"aten.log.default", unary_float<LogOf>},
    {"aten.logical_and.default", compare<LogicalAnd>},
    {"aten.logical_and_.default", compare<LogicalAnd, InPlace>},
    {"aten.logical_not.default", test_each<LogicalNot>},
    {"aten.logical_or.default", compare<LogicalOr>},
    {"aten.logical_xor.default", compare<LogicalXor>},
    {"aten.lt.Scalar", compare<Less>},
    {"aten.lt.Tensor", compare<Less>},
    {"aten.masked_fill.Scalar", masked_fill<Fresh>},
    {"aten.masked_fill.Tensor", masked_fill<Fresh>},
    {"aten.masked_fill_.Scalar", masked_fill<InPlace>},
    {"aten.masked_fill_.Tensor", masked_fill<InPlace>},
    {"aten.maximum.default", binary<Maximum>},
    {"aten.minimum.default", binary<Minimum>},
    {"aten.mul.Scalar", binary<Mul>},
    {"aten.mul.Tensor", binary<Mul>},
    {"aten.mul_.Scalar", binary<Mul, InPlace>},
    {"aten.mul_.Tensor", binary<Mul, InPlace>},
    {"aten.ne.Scalar", compare<NotEqual>},
    {"aten.ne.Tensor", compare<NotEqual>},
    {"aten.neg.default", unary<Neg>},
    {"aten.neg_.default", unary<Neg, InPlace>},
    {"aten.pow.Tensor_Scalar", pow_number},
    {"aten.reciprocal.default", unary_float<Reciprocal>},
    {"aten.relu.default", unary<Relu>},
    {"aten.relu_.default", unary<Relu, InPlace>},
    {"aten.remainder.Scalar", binary<Remainder>},
    {"aten.remainder.Tensor", binary<Remainder>},
    {"aten.round.default", unary<Round>},
    {"aten.rsqrt.default", unary_float<Rsqrt>},
    {"aten.rsub.Scalar", scaled<ReverseSub>},
    {"aten.rsub.Tensor", scaled<ReverseSub>},
    {"aten.sigmoid.default", unary_float<Sigmoid>},
    {"aten.sigmoid_.default", unary_float<Sigmoid, InPlace>},
    {"aten.sigmoid_backward.default", backward_of<SigmoidBackward>},
    {"aten.sign.default", unary<SignOf>},
    {"aten.silu.default", unary_float<Silu>},
    {"aten.silu_.default", unary_float<Silu, InPlace>},
    {"aten.silu_backward.default", backward_of<SiluBackward>},
    {"aten.sin.default", unary_float<Sin>},
    {"aten.sqrt.default", unary_float<Sqrt>},
    {"aten.sqrt_.default", unary_float<Sqrt, InPlace>},
    {"aten.square.default", unary<Square>},
    {"aten.sub.Scalar", scaled<SubScaled, Fresh>},
    {"aten.sub.Tensor", scaled<SubScaled, Fresh>},
    {"aten.sub_.Scalar", scaled<SubScaled, InPlace>},
    {"aten.sub_.Tensor", scaled<SubScaled, InPlace>},
    {"aten.tanh.default", unary_float<Tanh>},
    {"aten.tanh_backward.default", backward_of<TanhBackward>},
    {"aten.threshold_backward.default", backward_of<ThresholdBackward>},
    {"aten.trunc.default", unary<Trunc>},
    {"aten.where.Scalar", where},
    {"aten.where.ScalarOther", where},
    {"aten.where.ScalarSelf", where},
    {"aten.where.self", where},
};

}  // namespace

std::span<const KernelRow> pointwise_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
