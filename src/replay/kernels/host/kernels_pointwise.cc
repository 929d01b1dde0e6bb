// Ops that map each element: arithmetic, comparisons, bitwise, where, activations and their
// derivatives. What each computes is in math/element_ops.h; here are its operands, its result and
// the loop. The same functions serve a device: where the result is in a device's memory the op goes
// into its queue.
#include "replay/kernels/host/in_double.h"
#include "replay/kernels/host/kernels.h"
#include "replay/kernels/host/map_ops.h"

namespace epweave::replay::cpu {
namespace {

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

template <class Op>
Value test_each(KernelCall& call) {
  const Tensor& a = call.tensor(0);
  const Tensor out = result_like(call, DType::kBool, {&a});
  map_op<Op, 1>(call, a.dtype, out, {&a});
  return out;
}

Value logical_not_in_place(KernelCall& call) {
  const Tensor& a = call.tensor(0);
  map_op<LogicalNot, 1>(call, a.dtype, a, {&a});
  return a;
}

Value bitwise_not(KernelCall& call) {
  const Tensor& a = call.tensor(0);
  if (a.dtype == DType::kBool) return test_each<LogicalNot>(call);
  const Tensor out = result_like(call, a.dtype, {&a});
  map_op<BitNot, 1>(call, a.dtype, out, {&a});
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

template <class Where>
Value pow_number(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  if (compute_of(common) == Compute::kInt) {
    if (call.integer(1) < 0) throw KernelError("integers to negative powers are not allowed");
  }
  const Tensor a = operand(call, 0, common);
  const Tensor out = Where::target(call, common, {&a});
  map_op<Power, 1>(call, common, out, {&a}, call[1]);
  return out;
}

// x log(y), not rounded in between. A NaN of y stays; else it is 0 where x is.
Value times_logarithm(KernelCall& call) {
  const DType common = to_float(promoted_dtype(call, {0, 1}));
  const Tensor x = operand(call, 0, common), y = operand(call, 1, common);
  const Tensor out = result_like(call, common, {&x, &y});
  const DType computed = compute_of(common) == Compute::kDouble ? DType::kFloat64 : DType::kFloat32;
  const Tensor product = call.make(computed, out.sizes), test = call.make(DType::kBool, out.sizes),
               zero = number_tensor(call, Value(0.0), computed);
  map_op<LogOf, 1>(call, computed, product, {&y});
  map_op<Mul, 2>(call, computed, product, {&x, &product});
  map_op<Equal, 2>(call, computed, test, {&x, &zero});
  select_elements(call, {&test, &zero, &product}, product);
  map_op<IsNan, 1>(call, computed, test, {&y});
  return select_elements(call, {&test, &y, &product}, out);
}

// ---- composed -----------------------------------------------------------------------------

class Formula : public InDouble {
 public:
  using InDouble::InDouble;

  Value store(const Tensor& values) {
    const Tensor& self = call_.tensor(0);
    const Tensor out = result_like(call_, to_float(self.dtype), {&self});
    copy_elements(values, out);
    return out;
  }
  // Of two operands.
  Value store(const Tensor& values, DType dtype) {
    const Tensor& a = call_.tensor(0);
    const Tensor out = call_[1].is_tensor() ? result_like(call_, dtype, {&a, &call_.tensor(1)})
                                            : result_like(call_, dtype, {&a});
    copy_elements(values, out);
    return out;
  }
};

Value tangent(KernelCall& call) {
  Formula by(call);
  const Tensor x = by.operand(0);
  return by.store(by.map<Div>(by.map<Sin>(x), by.map<Cos>(x)));
}
Value arc_tangent(KernelCall& call) {
  Formula by(call);
  return by.store(by.map<Atan2>(by.operand(0), by.number(1)));
}
// sqrt(1 - x * x) without cancellation near 1.
Tensor cosine_of_arc_sine(Formula& by, const Tensor& x) {
  const Tensor one = by.number(1);
  return by.map<Sqrt>(by.map<Mul>(by.map<Difference>(one, x), by.map<Difference>(one, by.map<Neg>(x))));
}
Value arc_sine(KernelCall& call) {
  Formula by(call);
  const Tensor x = by.operand(0);
  return by.store(by.map<Atan2>(x, cosine_of_arc_sine(by, x)));
}
Value arc_cosine(KernelCall& call) {
  Formula by(call);
  const Tensor x = by.operand(0);
  return by.store(by.map<Atan2>(cosine_of_arc_sine(by, x), x));
}
// Half of exp(x), of |x| so large that exp(x) is no number: exp(x / 2) times its half.
Tensor half_of_exp(Formula& by, const Tensor& x) {
  const Tensor half = by.number(0.5), root = by.map<Exp>(by.map<Mul>(x, half));
  return by.map<Mul>(by.map<Mul>(root, half), root);
}
Value hyperbolic_cosine(KernelCall& call) {
  Formula by(call);
  const Tensor x = by.operand(0);
  const Tensor there = half_of_exp(by, x), back = half_of_exp(by, by.map<Neg>(x));
  return by.store(by.map<Difference>(there, by.map<Neg>(back)));
}
// By expm1 where the exponentials cancel.
Value hyperbolic_sine(KernelCall& call) {
  Formula by(call);
  const Tensor x = by.operand(0), one = by.number(1), half = by.number(0.5);
  const Tensor grown = by.map<Expm1>(x);
  const Tensor ratio = by.map<Div>(grown, by.map<Difference>(grown, by.number(-1)));
  const Tensor small = by.map<Mul>(half, by.map<Difference>(grown, by.map<Neg>(ratio)));
  const Tensor large = by.map<Difference>(half_of_exp(by, x), half_of_exp(by, by.map<Neg>(x)));
  return by.store(by.map<Select>(by.map<Less>(by.map<Abs>(x), one), small, large));
}

Value logarithm_of_ten(KernelCall& call) {
  Formula by(call);
  return by.store(by.map<Div>(by.map<LogOf>(by.operand(0)), by.number(2.302585092994046)));
}
// log(x + sqrt(x * x - 1)), without cancellation near 1.
Value area_cosine(KernelCall& call) {
  Formula by(call);
  const Tensor above = by.map<Difference>(by.operand(0), by.number(1));
  const Tensor root =
      by.map<Mul>(by.map<Sqrt>(above), by.map<Sqrt>(by.map<Difference>(above, by.number(-2))));
  return by.store(by.map<Log1p>(by.map<Difference>(above, by.map<Neg>(root))));
}
// x - x^3 / 6 near 0; else log(|x| + sqrt(x * x + 1)) with the sign of x.
Value area_sine(KernelCall& call) {
  Formula by(call);
  const Tensor x = by.operand(0), size = by.map<Abs>(x), one = by.number(1), zero = by.number(0);
  const Tensor square = by.map<Mul>(x, x);
  const Tensor small = by.map<Mul>(x, by.map<Difference>(one, by.map<Div>(square, by.number(6))));
  const Tensor root = by.map<Sqrt>(by.map<Difference>(square, by.number(-1)));
  const Tensor share = by.map<Div>(size, by.map<Difference>(root, by.number(-1)));
  const Tensor grown = by.map<Log1p>(by.map<Difference>(size, by.map<Neg>(by.map<Mul>(size, share))));
  const Tensor huge = by.map<Difference>(by.map<LogOf>(size), by.number(-0.6931471805599453));
  const Tensor large = by.map<Select>(by.map<Less>(by.number(1e8), size), huge, grown);
  const Tensor with_sign = by.map<Select>(by.map<Less>(x, zero), by.map<Neg>(large), large);
  return by.store(by.map<Select>(by.map<Less>(size, by.number(1e-4)), small, with_sign));
}
Value area_tangent(KernelCall& call) {
  Formula by(call);
  const Tensor x = by.operand(0);
  const Tensor both = by.map<Difference>(by.map<Log1p>(x), by.map<Log1p>(by.map<Neg>(x)));
  return by.store(by.map<Mul>(both, by.number(0.5)));
}
// sqrt(x * x + y * y), by the ratio of the smaller to the larger; infinite where either is.
Value hypotenuse(KernelCall& call) {
  Formula by(call);
  const Tensor x = by.map<Abs>(by.operand(0)), y = by.map<Abs>(by.operand(1)), zero = by.number(0);
  const Tensor large = by.map<Maximum>(x, y), small = by.map<Minimum>(x, y);
  const Tensor ratio = by.map<Div>(small, large);
  const Tensor root = by.map<Sqrt>(by.map<Difference>(by.map<Mul>(ratio, ratio), by.number(-1)));
  const Tensor length = by.map<Select>(by.map<Equal>(large, zero), zero, by.map<Mul>(large, root));
  const Tensor infinity = by.number(std::numeric_limits<double>::infinity());
  const Tensor of_y = by.map<Select>(by.map<Equal>(y, infinity), infinity, length);
  return by.store(by.map<Select>(by.map<Equal>(x, infinity), infinity, of_y), promoted_dtype(call, {0, 1}));
}
// The angle of (-1, x) shows the sign of 0, too.
Tensor is_negative(Formula& by, const Tensor& x) {
  return by.map<Less>(by.map<Atan2>(x, by.number(-1)), by.number(0));
}
Value sign_bit(KernelCall& call) {
  Formula by(call);
  const Tensor out = result_like(call, DType::kBool, {&call.tensor(0)});
  copy_elements(is_negative(by, by.operand(0)), out);
  return out;
}
Value with_sign_of_other(KernelCall& call) {
  Formula by(call);
  const Tensor size = by.map<Abs>(by.operand(0));
  const Tensor other = call[1].is_tensor() ? by.operand(1) : number_tensor(call, call[1], DType::kFloat64);
  const Tensor with_sign = by.map<Select>(is_negative(by, other), by.map<Neg>(size), size);
  return by.store(with_sign, to_float(promoted_dtype(call, {0, 1})));
}

// x - trunc(x), which is exact.
Value fraction(KernelCall& call) {
  const Tensor& x = call.tensor(0);
  const Tensor out = result_like(call, x.dtype, {&x}), whole = call.make(x.dtype, x.sizes);
  map_op<Trunc, 1>(call, x.dtype, whole, {&x});
  map_op<Difference, 2>(call, x.dtype, out, {&x, &whole});
  return out;
}

// To so many decimal places; below 0, to a multiple of a power of ten. 16-bit floats are computed
// in float32, as PyTorch does.
Value round_to_decimals(KernelCall& call) {
  const Tensor& x = call.tensor(0);
  if (!is_floating(x.dtype)) refuse_dtype(call, x.dtype);
  const std::int64_t decimals = call.integer(1);
  double places = 1;
  for (std::int64_t i = std::abs(decimals); i > 0; --i) places *= 10;
  const DType computed = x.dtype == DType::kFloat64 ? x.dtype : DType::kFloat32;
  const Tensor power = number_tensor(call, Value(places), computed);
  const Tensor out = result_like(call, x.dtype, {&x}), moved = call.make(computed, x.sizes);
  const auto move = [&](const Tensor& from, const Tensor& to, bool is_up) {
    is_up ? map_op<Mul, 2>(call, computed, to, {&from, &power})
          : map_op<Div, 2>(call, computed, to, {&from, &power});
  };
  move(x, moved, decimals >= 0);
  map_op<Round, 1>(call, computed, moved, {&moved});
  move(moved, out, decimals < 0);
  return out;
}

// Maximum or minimum, but of a number and a NaN the number.
template <class Op>
Value extreme_of_numbers(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common);
  const Tensor out = result_like(call, common, {&a, &b});
  const Tensor extreme = call.make(common, out.sizes), is_nan = call.make(DType::kBool, out.sizes);
  map_op<Op, 2>(call, common, extreme, {&a, &b});
  map_op<IsNan, 1>(call, common, is_nan, {&a});
  select_elements(call, {&is_nan, &b, &extreme}, extreme);
  map_op<IsNan, 1>(call, common, is_nan, {&b});
  return select_elements(call, {&is_nan, &a, &extreme}, out);
}

// x where it is positive, else weight * x.
Value prelu(KernelCall& call) {
  const Tensor &x = call.tensor(0), &weight = call.tensor(1);
  const Tensor out = result_like(call, x.dtype, {&x, &weight});
  const Tensor product = call.make(x.dtype, out.sizes), is_positive = call.make(DType::kBool, x.sizes),
               zero = number_tensor(call, Value(0.0), x.dtype);
  map_op<Mul, 2>(call, x.dtype, product, {&x, &weight});
  map_op<Greater, 2>(call, x.dtype, is_positive, {&x, &zero});
  return select_elements(call, {&is_positive, &x, &product}, out);
}

// Real values are themselves, in the same memory. Of others a copy: tensors here have no lazy
// conjugation.
Value conjugate(KernelCall& call) {
  return call.tensor(0).dtype == DType::kComplex64 ? unary<Conjugate>(call) : Value(call.tensor(0));
}

constexpr KernelRow kRows[] = {
    {"aten.__and__.Tensor", binary<BitAnd>},
    {"aten.__lshift__.Scalar", binary<ShiftLeft>},
    {"aten.__lshift__.Tensor", binary<ShiftLeft>},
    {"aten.__or__.Tensor", binary<BitOr>},
    {"aten.__rshift__.Scalar", binary<ShiftRight>},
    {"aten.__rshift__.Tensor", binary<ShiftRight>},
    {"aten._conj.default", conjugate},
    {"aten._prelu_kernel.default", prelu},
    {"aten.abs.default", unary<Abs>},
    {"aten.abs_.default", unary<Abs, InPlace>},
    {"aten.acos.default", arc_cosine},
    {"aten.acosh.default", area_cosine},
    {"aten.add.Scalar", scaled<AddScaled, Fresh>},
    {"aten.add.Tensor", scaled<AddScaled, Fresh>},
    {"aten.add_.Scalar", scaled<AddScaled, InPlace>},
    {"aten.add_.Tensor", scaled<AddScaled, InPlace>},
    {"aten.addcdiv.default", add_product<AddQuotient, Fresh>},
    {"aten.addcdiv_.default", add_product<AddQuotient, InPlace>},
    {"aten.addcmul.default", add_product<AddProduct, Fresh>},
    {"aten.addcmul_.default", add_product<AddProduct, InPlace>},
    {"aten.asin.default", arc_sine},
    {"aten.asinh.default", area_sine},
    {"aten.atan.default", arc_tangent},
    {"aten.atanh.default", area_tangent},
    {"aten.bitwise_and.Scalar", binary<BitAnd>},
    {"aten.bitwise_and.Tensor", binary<BitAnd>},
    {"aten.bitwise_and_.Tensor", binary<BitAnd, InPlace>},
    {"aten.bitwise_left_shift.Tensor", binary<ShiftLeft>},
    {"aten.bitwise_not.default", bitwise_not},
    {"aten.bitwise_or.Scalar", binary<BitOr>},
    {"aten.bitwise_or.Tensor", binary<BitOr>},
    {"aten.bitwise_or_.Tensor", binary<BitOr, InPlace>},
    {"aten.bitwise_right_shift.Tensor", binary<ShiftRight>},
    {"aten.bitwise_xor.Scalar", binary<BitXor>},
    {"aten.bitwise_xor.Tensor", binary<BitXor>},
    {"aten.ceil.default", unary<Ceil>},
    {"aten.ceil_.default", unary<Ceil, InPlace>},
    {"aten.clamp.Tensor", clamp<Fresh>},
    {"aten.clamp.default", clamp<Fresh>},
    {"aten.clamp_.default", clamp<InPlace>},
    {"aten.clamp_max.Tensor", binary<Minimum>},
    {"aten.clamp_max.default", binary<Minimum>},
    {"aten.clamp_max_.default", binary<Minimum, InPlace>},
    {"aten.clamp_min.Tensor", binary<Maximum>},
    {"aten.clamp_min.default", binary<Maximum>},
    {"aten.clamp_min_.Tensor", binary<Maximum, InPlace>},
    {"aten.clamp_min_.default", binary<Maximum, InPlace>},
    {"aten.conj_physical.default", conjugate},
    {"aten.copysign.Scalar", with_sign_of_other},
    {"aten.copysign.Tensor", with_sign_of_other},
    {"aten.cos.default", unary_float<Cos>},
    {"aten.cos_.default", unary_float<Cos, InPlace>},
    {"aten.cosh.default", hyperbolic_cosine},
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
    {"aten.floor_.default", unary<Floor, InPlace>},
    {"aten.floor_divide.Scalar", binary<FloorDiv>},
    {"aten.floor_divide.default", binary<FloorDiv>},
    {"aten.fmax.default", extreme_of_numbers<Maximum>},
    {"aten.fmin.default", extreme_of_numbers<Minimum>},
    {"aten.fmod.Scalar", binary<Fmod>},
    {"aten.fmod.Tensor", binary<Fmod>},
    {"aten.frac.default", fraction},
    {"aten.ge.Scalar", compare<GreaterEqual>},
    {"aten.ge.Tensor", compare<GreaterEqual>},
    {"aten.gt.Scalar", compare<Greater>},
    {"aten.gt.Tensor", compare<Greater>},
    {"aten.hypot.default", hypotenuse},
    {"aten.isinf.default", test_each<IsInf>},
    {"aten.isnan.default", test_each<IsNan>},
    {"aten.le.Scalar", compare<LessEqual>},
    {"aten.le.Tensor", compare<LessEqual>},
    {"aten.lerp.Scalar", lerp<Fresh>},
    {"aten.lerp.Tensor", lerp<Fresh>},
    {"aten.lerp_.Scalar", lerp<InPlace>},
    {"aten.lerp_.Tensor", lerp<InPlace>},
    {"aten.log.default", unary_float<LogOf>},
    {"aten.log10.default", logarithm_of_ten},
    {"aten.log_.default", unary_float<LogOf, InPlace>},
    {"aten.logical_and.default", compare<LogicalAnd>},
    {"aten.logical_and_.default", compare<LogicalAnd, InPlace>},
    {"aten.logical_not.default", test_each<LogicalNot>},
    {"aten.logical_not_.default", logical_not_in_place},
    {"aten.logical_or.default", compare<LogicalOr>},
    {"aten.logical_or_.default", compare<LogicalOr, InPlace>},
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
    {"aten.pow.Scalar", binary<PowerOf>},
    {"aten.pow.Tensor_Scalar", pow_number<Fresh>},
    {"aten.pow.Tensor_Tensor", binary<PowerOf>},
    {"aten.pow_.Scalar", pow_number<InPlace>},
    {"aten.reciprocal.default", unary_float<Reciprocal>},
    {"aten.reciprocal_.default", unary_float<Reciprocal, InPlace>},
    {"aten.relu.default", unary<Relu>},
    {"aten.relu_.default", unary<Relu, InPlace>},
    {"aten.remainder.Scalar", binary<Remainder>},
    {"aten.remainder.Tensor", binary<Remainder>},
    {"aten.round.decimals", round_to_decimals},
    {"aten.round.default", unary<Round>},
    {"aten.round_.default", unary<Round, InPlace>},
    {"aten.rsqrt.default", unary_float<Rsqrt>},
    {"aten.rsqrt_.default", unary_float<Rsqrt, InPlace>},
    {"aten.rsub.Scalar", scaled<ReverseSub>},
    {"aten.rsub.Tensor", scaled<ReverseSub>},
    {"aten.sgn.default", unary<SignOf>},
    {"aten.sigmoid.default", unary_float<Sigmoid>},
    {"aten.sigmoid_.default", unary_float<Sigmoid, InPlace>},
    {"aten.sigmoid_backward.default", backward_of<SigmoidBackward>},
    {"aten.sign.default", unary<SignOf>},
    {"aten.signbit.default", sign_bit},
    {"aten.silu.default", unary_float<Silu>},
    {"aten.silu_.default", unary_float<Silu, InPlace>},
    {"aten.silu_backward.default", backward_of<SiluBackward>},
    {"aten.sin.default", unary_float<Sin>},
    {"aten.sin_.default", unary_float<Sin, InPlace>},
    {"aten.sinh.default", hyperbolic_sine},
    {"aten.sqrt.default", unary_float<Sqrt>},
    {"aten.sqrt_.default", unary_float<Sqrt, InPlace>},
    {"aten.square.default", unary<Square>},
    {"aten.sub.Scalar", scaled<SubScaled, Fresh>},
    {"aten.sub.Tensor", scaled<SubScaled, Fresh>},
    {"aten.sub_.Scalar", scaled<SubScaled, InPlace>},
    {"aten.sub_.Tensor", scaled<SubScaled, InPlace>},
    {"aten.tan.default", tangent},
    {"aten.tanh.default", unary_float<Tanh>},
    {"aten.tanh_.default", unary_float<Tanh, InPlace>},
    {"aten.tanh_backward.default", backward_of<TanhBackward>},
    {"aten.threshold_backward.default", backward_of<ThresholdBackward>},
    {"aten.trunc.default", unary<Trunc>},
    {"aten.where.Scalar", where},
    {"aten.where.ScalarOther", where},
    {"aten.where.ScalarSelf", where},
    {"aten.where.self", where},
    {"aten.xlogy.Tensor", times_logarithm},
};

}  // namespace

std::span<const KernelRow> pointwise_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
