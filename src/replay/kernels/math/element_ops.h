// What each elementwise op computes from its elements: one source for the CPU's loops and the GPU's
// kernels.
//
// An op is a struct with `apply` for the compute types that it `allows`; comparisons and tests give
// 1 or 0. Ops that take a number (alpha, a threshold) have it as their first argument.
//
// Rounding: the 16-bit floats are computed in float32 and rounded once. a + alpha * b is one fused
// multiply-add. A quotient is one division. Complex products are written out, without fusing.
// An integer division by zero gives 0 here: who calls checks `divides` first.
#pragma once

#include <math.h>

#include "replay/kernels/math/element_op.h"
#include "replay/kernels/math/elements.h"
#include "replay/kernels/math/special_functions.h"

namespace epweave::math {

EPWEAVE_HD std::int64_t wrapping_mul(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
EPWEAVE_HD std::int64_t wrapping_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
EPWEAVE_HD std::int64_t wrapping_neg(std::int64_t a) {
  return static_cast<std::int64_t>(0u - static_cast<std::uint64_t>(a));
}

template <class C>
EPWEAVE_HD C infinity() {
  if constexpr (std::is_same_v<C, float>)
    return float_of(0x7f800000u);
  else
    return double_of(0x7ff0000000000000u);
}
EPWEAVE_HD float copy_sign(float magnitude, float sign) {
  return float_of((bits_of(magnitude) & 0x7fffffffu) | (bits_of(sign) & 0x80000000u));
}
EPWEAVE_HD double copy_sign(double magnitude, double sign) {
  return double_of((bits_of(magnitude) & 0x7fffffffffffffffu) | (bits_of(sign) & 0x8000000000000000u));
}

EPWEAVE_HD std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrapping_neg(a);
  const std::int64_t q = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? q - 1 : q;
}
// torch's div_floor: Python's floor division of floats. fmod, floor, ceil, trunc and rint are
// exact.
template <class C>
EPWEAVE_HD C floor_quotient(C a, C b) {
  if (b == 0) return a / b;
  const C mod = ::fmod(a, b);
  C div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
  if (div == 0) return copy_sign(C(0), a / b);
  C floored = ::floor(div);
  if (div - floored > C(0.5)) floored += 1;
  return floored;
}
template <class C>
EPWEAVE_HD C python_remainder(C a, C b) {
  if constexpr (is_int<C>) {
    return wrapping_add(a, wrapping_neg(wrapping_mul(floor_quotient(a, b), b)));
  } else {
    C mod = ::fmod(a, b);
    if (mod != 0 && (b < 0) != (mod < 0)) mod += b;
    return mod;
  }
}

// Which compute types an op is defined for.
struct AnyType {
  template <class C>
  static constexpr bool allows = true;
  static constexpr bool divides = false;
};
struct NotComplex : AnyType {
  template <class C>
  static constexpr bool allows = !is_complex_type<C>;
};
struct FloatOnly : AnyType {
  template <class C>
  static constexpr bool allows = is_real_float<C>;
};
struct IntOnly : AnyType {
  template <class C>
  static constexpr bool allows = is_int<C>;
};

// ---- two operands -------------------------------------------------------------------------

struct Mul : AnyType {
  template <class C>
  EPWEAVE_HD static C apply(C a, C b) {
    if constexpr (is_int<C>)
      return wrapping_mul(a, b);
    else
      return a * b;
  }
};
struct Div : AnyType {
  static constexpr bool divides = true;
  template <class C>
  EPWEAVE_HD static C apply(C a, C b) {
    if constexpr (is_int<C>) {
      return floor_quotient(a, b);
    } else if constexpr (is_complex_type<C>) {
      const float norm = b.real() * b.real() + b.imag() * b.imag();
      return {(a.real() * b.real() + a.imag() * b.imag()) / norm,
              (a.imag() * b.real() - a.real() * b.imag()) / norm};
    } else {
      return a / b;
    }
  }
};
struct FloorDiv : NotComplex {
  static constexpr bool divides = true;
  template <class C>
  EPWEAVE_HD static C apply(C a, C b) {
    return floor_quotient(a, b);
  }
};
struct TruncDiv : NotComplex {
  static constexpr bool divides = true;
  template <class C>
  EPWEAVE_HD static C apply(C a, C b) {
    if constexpr (is_int<C>)
      return b == 0 ? 0 : b == -1 ? wrapping_neg(a) : a / b;
    else
      return ::trunc(a / b);
  }
};
struct Remainder : NotComplex {
  static constexpr bool divides = true;
  template <class C>
  EPWEAVE_HD static C apply(C a, C b) {
    return python_remainder(a, b);
  }
};
struct Fmod : NotComplex {
  static constexpr bool divides = true;
  template <class C>
  EPWEAVE_HD static C apply(C a, C b) {
    if constexpr (is_int<C>)
      return b == 0 || b == -1 ? 0 : a % b;
    else
      return ::fmod(a, b);
  }
};
struct Maximum : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C a, C b) {
    return a != a ? a : b != b ? b : a < b ? b : a;
  }
};
struct Minimum : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C a, C b) {
    return a != a ? a : b != b ? b : b < a ? b : a;
  }
};
struct BitAnd : IntOnly {
  EPWEAVE_HD static std::int64_t apply(std::int64_t a, std::int64_t b) { return a & b; }
};
struct BitOr : IntOnly {
  EPWEAVE_HD static std::int64_t apply(std::int64_t a, std::int64_t b) { return a | b; }
};
struct BitXor : IntOnly {
  EPWEAVE_HD static std::int64_t apply(std::int64_t a, std::int64_t b) { return a ^ b; }
};
struct ShiftLeft : IntOnly {
  EPWEAVE_HD static std::int64_t apply(std::int64_t a, std::int64_t b) {
    return b < 0 || b > 63 ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << b);
  }
};
struct ShiftRight : IntOnly {
  EPWEAVE_HD static std::int64_t apply(std::int64_t a, std::int64_t b) {
    return b < 0 || b > 63 ? (a < 0 ? -1 : 0) : a >> b;
  }
};

struct Equal : AnyType {
  template <class C>
  EPWEAVE_HD static bool test(C a, C b) {
    return a == b;
  }
};
struct NotEqual : AnyType {
  template <class C>
  EPWEAVE_HD static bool test(C a, C b) {
    return a != b;
  }
};
struct Less : NotComplex {
  template <class C>
  EPWEAVE_HD static bool test(C a, C b) {
    return a < b;
  }
};
struct LessEqual : NotComplex {
  template <class C>
  EPWEAVE_HD static bool test(C a, C b) {
    return a <= b;
  }
};
struct Greater : NotComplex {
  template <class C>
  EPWEAVE_HD static bool test(C a, C b) {
    return a > b;
  }
};
struct GreaterEqual : NotComplex {
  template <class C>
  EPWEAVE_HD static bool test(C a, C b) {
    return a >= b;
  }
};
struct LogicalAnd : AnyType {
  template <class C>
  EPWEAVE_HD static bool test(C a, C b) {
    return a != C(0) && b != C(0);
  }
};
struct LogicalOr : AnyType {
  template <class C>
  EPWEAVE_HD static bool test(C a, C b) {
    return a != C(0) || b != C(0);
  }
};
struct LogicalXor : AnyType {
  template <class C>
  EPWEAVE_HD static bool test(C a, C b) {
    return (a != C(0)) != (b != C(0));
  }
};

// ---- with a number ------------------------------------------------------------------------

// x + alpha * y
struct AddScaled : AnyType {
  template <class C>
  EPWEAVE_HD static C apply(C alpha, C x, C y) {
    if constexpr (is_int<C>)
      return wrapping_add(x, wrapping_mul(alpha, y));
    else if constexpr (is_complex_type<C>)
      return x + Mul::apply(alpha, y);
    else
      return alpha == C(1) ? x + y : alpha == C(-1) ? x - y : fma(alpha, y, x);
  }
};
// x - alpha * y
struct SubScaled : AnyType {
  template <class C>
  EPWEAVE_HD static C apply(C alpha, C x, C y) {
    return AddScaled::apply(C(0) - alpha, x, y);
  }
};
// y - alpha * x
struct ReverseSub : AnyType {
  template <class C>
  EPWEAVE_HD static C apply(C alpha, C x, C y) {
    if constexpr (is_int<C>)
      return wrapping_add(y, wrapping_neg(wrapping_mul(alpha, x)));
    else if constexpr (is_complex_type<C>)
      return y - Mul::apply(alpha, x);
    else
      return fma(-alpha, x, y);
  }
};
struct ThresholdBackward : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C threshold, C grad, C x) {
    return x <= threshold ? C(0) : grad;
  }
};
// x + value * y * z, x + value * y / z
struct AddProduct : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C value, C x, C y, C z) {
    return fma(value * y, z, x);
  }
};
struct AddQuotient : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C value, C x, C y, C z) {
    return x + value * y / z;
  }
};

// ---- one operand --------------------------------------------------------------------------

struct Neg : AnyType {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    if constexpr (is_int<C>)
      return wrapping_neg(x);
    else
      return -x;
  }
};
struct Abs : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    if constexpr (is_int<C>)
      return x < 0 ? wrapping_neg(x) : x;
    else
      return abs(x);
  }
};
struct Square : AnyType {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return Mul::apply(x, x);
  }
};
struct Conjugate : AnyType {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    if constexpr (is_complex_type<C>)
      return {x.real(), -x.imag()};
    else
      return x;
  }
};
struct BitNot : IntOnly {
  EPWEAVE_HD static std::int64_t apply(std::int64_t x) { return ~x; }
};
struct Relu : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return x < C(0) ? C(0) : x;  // keeps -0.0 and NaN
  }
};
struct SignOf : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return x > C(0) ? C(1) : x < C(0) ? C(-1) : C(0);  // NaN: 0
  }
};
struct LogicalNot : AnyType {
  template <class C>
  EPWEAVE_HD static bool test(C x) {
    return x == C(0);
  }
};
struct IsNan : NotComplex {
  template <class C>
  EPWEAVE_HD static bool test(C x) {
    return x != x;
  }
};
struct IsInf : NotComplex {
  template <class C>
  EPWEAVE_HD static bool test(C x) {
    if constexpr (is_int<C>)
      return false;
    else
      return abs(x) == infinity<C>();
  }
};
struct Floor : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    if constexpr (is_int<C>)
      return x;
    else
      return ::floor(x);
  }
};
struct Ceil : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    if constexpr (is_int<C>)
      return x;
    else
      return ::ceil(x);
  }
};
struct Trunc : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    if constexpr (is_int<C>)
      return x;
    else
      return ::trunc(x);
  }
};
struct Round : NotComplex {  // halves to even
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    if constexpr (is_int<C>)
      return x;
    else
      return ::rint(x);
  }
};
struct LogOf : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return log(x);
  }
};
struct Sin : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return sin(x);
  }
};
struct Cos : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return cos(x);
  }
};
struct Sqrt : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return sqrt(x);
  }
};
struct Rsqrt : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return rsqrt(x);
  }
};
struct Tanh : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return tanh(x);
  }
};
struct Reciprocal : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return C(1) / x;
  }
};
struct Exp : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return exp(x);
  }
};
struct Sigmoid : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return sigmoid(x);
  }
};
struct Silu : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return silu(x);
  }
};

// ---- derivatives, selection ---------------------------------------------------------------

struct SiluBackward : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C grad, C x) {
    return silu_backward(grad, x);
  }
};
struct SigmoidBackward : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C grad, C y) {
    return grad * (C(1) - y) * y;
  }
};
struct TanhBackward : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C grad, C y) {
    return grad * (C(1) - y * y);
  }
};
struct Lerp : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x, C y, C t) {
    return abs(t) < C(0.5) ? x + t * (y - x) : y - (y - x) * (C(1) - t);
  }
};
// The condition travels as the compute type.
struct Select : AnyType {
  template <class C>
  EPWEAVE_HD static C apply(C condition, C x, C y) {
    return condition != C(0) ? x : y;
  }
};
// NaN stays; a NaN bound wins.
struct Clamp : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C x, C low, C high) {
    if (x != x || low != low || high != high) return x != x ? x : low != low ? low : high;
    if (x < low) x = low;
    return high < x ? high : x;
  }
};

// exp(x - shift); 0 where the row has no element, shift being -inf.
struct ShiftedExp : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x, C shift) {
    return shift == -infinity<C>() ? C(0) : exp(x - shift);
  }
};
// x / total; x where the row's maximum is -inf.
struct DivideRow : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x, C total, C maximum) {
    return maximum == -infinity<C>() ? x : x / total;
  }
};
// The natural logarithm of a row's sum of exponentials.
struct LogSumExp : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C maximum, C total) {
    return maximum == -infinity<C>() ? maximum : maximum + log(total);
  }
};
// x where the score is kept, else -inf (a score) or 0 (its gradient).
struct KeepScore : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C keep, C x) {
    return keep != C(0) ? x : -infinity<C>();
  }
};
struct KeepGradient : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C scale, C score, C grad) {
    return score == -infinity<C>() ? C(0) : grad * scale;
  }
};
// beta * s + alpha * product, the product finished first; `beta` is the number.
struct ScaledSum : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C beta, C alpha, C product, C s) {
    return beta == C(0) ? alpha * product : fma(alpha, product, beta * s);
  }
};

// ---- through double (special_functions.h) -------------------------------------------------

// An op whose C is double of double, and float of the same, rounded once.
#define EPWEAVE_UNARY_THROUGH_DOUBLE(Name, function)                 \
  struct Name : FloatOnly {                                          \
    template <class C>                                               \
    EPWEAVE_HD static C apply(C x) {                                 \
      return static_cast<C>(math::function(static_cast<double>(x))); \
    }                                                                \
  };
#define EPWEAVE_BINARY_THROUGH_DOUBLE(Name, function)                                        \
  struct Name : FloatOnly {                                                                  \
    template <class C>                                                                       \
    EPWEAVE_HD static C apply(C x, C y) {                                                    \
      return static_cast<C>(math::function(static_cast<double>(x), static_cast<double>(y))); \
    }                                                                                        \
  };
EPWEAVE_UNARY_THROUGH_DOUBLE(Expm1, expm1)
EPWEAVE_UNARY_THROUGH_DOUBLE(Log1p, log1p)
EPWEAVE_UNARY_THROUGH_DOUBLE(Log2, log2)
EPWEAVE_UNARY_THROUGH_DOUBLE(Exp2, exp2)
EPWEAVE_UNARY_THROUGH_DOUBLE(Erf, erf)
EPWEAVE_UNARY_THROUGH_DOUBLE(Gelu, gelu)
EPWEAVE_UNARY_THROUGH_DOUBLE(GeluTanh, gelu_tanh)
EPWEAVE_UNARY_THROUGH_DOUBLE(LogSigmoid, log_sigmoid)
EPWEAVE_UNARY_THROUGH_DOUBLE(Mish, mish)
EPWEAVE_BINARY_THROUGH_DOUBLE(Atan2, atan2)
EPWEAVE_BINARY_THROUGH_DOUBLE(GeluBackward, gelu_backward)
EPWEAVE_BINARY_THROUGH_DOUBLE(GeluTanhBackward, gelu_tanh_backward)
EPWEAVE_BINARY_THROUGH_DOUBLE(LogSigmoidBackward, log_sigmoid_backward)
EPWEAVE_BINARY_THROUGH_DOUBLE(LogAddExp, log_add_exp)
EPWEAVE_BINARY_THROUGH_DOUBLE(MishBackward, mish_backward)
EPWEAVE_BINARY_THROUGH_DOUBLE(CrossEntropy, cross_entropy)
#undef EPWEAVE_UNARY_THROUGH_DOUBLE
#undef EPWEAVE_BINARY_THROUGH_DOUBLE

struct Softplus : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x, C beta, C threshold) {
    return static_cast<C>(
        softplus(static_cast<double>(x), static_cast<double>(beta), static_cast<double>(threshold)));
  }
};
struct SoftplusBackward : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C beta, C grad, C x, C threshold) {
    return static_cast<C>(softplus_backward(static_cast<double>(grad), static_cast<double>(x),
                                            static_cast<double>(beta), static_cast<double>(threshold)));
  }
};
// above * x for positive x, below * (exp(input_scale * x) - 1) for others; `input_scale` is the
// number.
struct Elu : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C input_scale, C x, C below, C above) {
    return x > C(0) ? above * x : below * expm1(x * input_scale);
  }
};

// The derivative of Elu at x, and at what Elu gave there.
struct EluSlope : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C input_scale, C x, C below, C above) {
    return x <= C(0) ? input_scale * below * exp(x * input_scale) : above;
  }
};
struct EluSlopeOfResult : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C input_scale, C result, C below, C above) {
    return result <= C(0) ? input_scale * (result + below) : above;
  }
};

struct LeakyRelu : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C slope, C x) {
    return x > C(0) ? x : x * slope;
  }
};
struct LeakyReluBackward : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C slope, C grad, C x) {
    return x > C(0) ? grad : grad * slope;
  }
};
// The gradient where low < x < high; `low` is the number.
struct HardtanhBackward : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C low, C grad, C x, C high) {
    return x <= low || x >= high ? C(0) : grad;
  }
};

// ---- piecewise linear and gated activations -----------------------------------------------

// x + 3, not below 0 nor above 6.
template <class C>
EPWEAVE_HD C clamped_to_six(C x) {
  const C shifted = x + C(3);
  return shifted < C(0) ? C(0) : shifted > C(6) ? C(6) : shifted;
}
struct Hardsigmoid : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return clamped_to_six(x) / C(6);
  }
};
struct HardsigmoidBackward : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C grad, C x) {
    return x > C(-3) && x < C(3) ? grad * (C(1) / C(6)) : C(0);
  }
};
struct Hardswish : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x) {
    return x * clamped_to_six(x) / C(6);
  }
};
struct HardswishBackward : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C grad, C x) {
    if (x <= C(-3)) return C(0);
    return x < C(3) ? grad * (x / C(3) + C(0.5)) : grad;
  }
};
struct Glu : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x, C gate) {
    return x * sigmoid(gate);
  }
};
// Of the gate; that of x is Glu of the gradient.
struct GluBackward : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C grad, C x, C gate) {
    const C open = sigmoid(gate);
    return (C(1) - open) * open * grad * x;
  }
};

// ---- losses: the term of a prediction x and a target t, and its derivative by x ----------

struct Difference : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x, C t) {
    return x - t;
  }
};
struct SquaredDifference : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x, C t) {
    const C difference = x - t;
    return difference * difference;
  }
};
struct SmoothL1 : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C beta, C x, C t) {
    const C distance = abs(x - t);
    return distance < beta ? C(0.5) * distance * distance / beta : distance - C(0.5) * beta;
  }
};
struct SmoothL1Slope : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C beta, C x, C t) {
    const C difference = x - t;
    return difference <= -beta ? C(-1) : difference >= beta ? C(1) : difference / beta;
  }
};
struct Huber : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C delta, C x, C t) {
    const C distance = abs(x - t);
    return distance <= delta ? C(0.5) * distance * distance : delta * (distance - C(0.5) * delta);
  }
};
struct HuberSlope : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C delta, C x, C t) {
    const C difference = x - t;
    return difference <= -delta ? -delta : difference >= delta ? delta : difference;
  }
};
struct CrossEntropySlope : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x, C t) {
    const C spread = (C(1) - x) * x, least = C(1e-12F);  // in float64, too, the float32 that torch has
    return (x - t) / (spread > least ? spread : least);
  }
};
// x before its sigmoid; `weight` of the targets that are 1.
struct LogitsCrossEntropy : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C x, C t, C weight) {
    return static_cast<C>(
        logits_cross_entropy(static_cast<double>(x), static_cast<double>(t), static_cast<double>(weight)));
  }
};
struct ScaledProduct : FloatOnly {
  template <class C>
  EPWEAVE_HD static C apply(C scale, C x, C y) {
    return scale * x * y;
  }
};

struct ReplaceNan : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C nan, C x, C high, C low) {
    if constexpr (is_int<C>)
      return x;
    else
      return x != x ? nan : x == infinity<C>() ? high : x == -infinity<C>() ? low : x;
  }
};
struct ComplexOnly : AnyType {
  template <class C>
  static constexpr bool allows = is_complex_type<C>;
};
// Of two real numbers.
struct MakeComplex : ComplexOnly {
  template <class C>
  EPWEAVE_HD static C apply(C real, C imag) {
    return {real.real(), imag.real()};
  }
};

// ---- powers -------------------------------------------------------------------------------

// Integers wrap; a negative exponent (who calls refuses it) gives 0, of 1 and -1 their power.
EPWEAVE_HD std::int64_t whole_power(std::int64_t x, std::int64_t exponent) {
  if (exponent < 0) return x == 1 ? 1 : x == -1 ? ((exponent & 1) != 0 ? -1 : 1) : 0;
  std::int64_t y = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) y = wrapping_mul(y, x);
    x = wrapping_mul(x, x);
  }
  return y;
}
struct PowerOf : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C x, C exponent) {
    if constexpr (is_int<C>)
      return whole_power(x, exponent);
    else
      return pow(x, exponent);
  }
};
// The common ones by products and roots.
struct Power : NotComplex {
  template <class C>
  EPWEAVE_HD static C apply(C exponent, C x) {
    if constexpr (is_int<C>) {
      return whole_power(x, exponent);
    } else {
      if (exponent == C(2)) return x * x;
      if (exponent == C(3)) return x * x * x;
      if (exponent == C(1)) return x;
      if (exponent == C(0)) return C(1);
      if (exponent == C(0.5)) return sqrt(x);
      if (exponent == C(-0.5)) return rsqrt(x);
      if (exponent == C(-1)) return C(1) / x;
      if (exponent == C(-2)) return C(1) / (x * x);
      return pow(x, exponent);
    }
  }
};

// ---- by code ------------------------------------------------------------------------------

template <class Op>
inline constexpr ElementOp code_of = ElementOp::kCopy;
#define EPWEAVE_CODE(Name) \
  template <>              \
  inline constexpr ElementOp code_of<Name> = ElementOp::k##Name;
EPWEAVE_UNARY_OPS(EPWEAVE_CODE)
EPWEAVE_UNARY_TESTS(EPWEAVE_CODE)
EPWEAVE_BINARY_OPS(EPWEAVE_CODE)
EPWEAVE_BINARY_TESTS(EPWEAVE_CODE)
EPWEAVE_NUMBER_UNARY_OPS(EPWEAVE_CODE)
EPWEAVE_NUMBER_BINARY_OPS(EPWEAVE_CODE)
EPWEAVE_TERNARY_OPS(EPWEAVE_CODE)
EPWEAVE_NUMBER_TERNARY_OPS(EPWEAVE_CODE)
#undef EPWEAVE_CODE

template <class C>
struct ElementArgs {
  C number, x, y, z;
};

// An op by its code, for kernels that are not written per op. What the op does not allow gives 0;
// who launches has refused it.
#define EPWEAVE_CASE(Name, call)            \
  case ElementOp::k##Name:                  \
    if constexpr (Name::template allows<C>) \
      return call;                          \
    else                                    \
      return C(0);
template <class C>
EPWEAVE_HD C apply_unary(ElementOp op, const ElementArgs<C>& a) {
  switch (op) {
#define EPWEAVE_OP(Name) EPWEAVE_CASE(Name, Name::apply(a.x))
    EPWEAVE_UNARY_OPS(EPWEAVE_OP)
#undef EPWEAVE_OP
#define EPWEAVE_OP(Name) EPWEAVE_CASE(Name, C(Name::test(a.x) ? 1 : 0))
    EPWEAVE_UNARY_TESTS(EPWEAVE_OP)
#undef EPWEAVE_OP
#define EPWEAVE_OP(Name) EPWEAVE_CASE(Name, Name::apply(a.number, a.x))
    EPWEAVE_NUMBER_UNARY_OPS(EPWEAVE_OP)
#undef EPWEAVE_OP
    default:
      return a.x;
  }
}
template <class C>
EPWEAVE_HD C apply_binary(ElementOp op, const ElementArgs<C>& a) {
  switch (op) {
#define EPWEAVE_OP(Name) EPWEAVE_CASE(Name, Name::apply(a.x, a.y))
    EPWEAVE_BINARY_OPS(EPWEAVE_OP)
#undef EPWEAVE_OP
#define EPWEAVE_OP(Name) EPWEAVE_CASE(Name, C(Name::test(a.x, a.y) ? 1 : 0))
    EPWEAVE_BINARY_TESTS(EPWEAVE_OP)
#undef EPWEAVE_OP
#define EPWEAVE_OP(Name) EPWEAVE_CASE(Name, Name::apply(a.number, a.x, a.y))
    EPWEAVE_NUMBER_BINARY_OPS(EPWEAVE_OP)
#undef EPWEAVE_OP
    default:
      return C(0);
  }
}
template <class C>
EPWEAVE_HD C apply_ternary(ElementOp op, const ElementArgs<C>& a) {
  switch (op) {
#define EPWEAVE_OP(Name) EPWEAVE_CASE(Name, Name::apply(a.x, a.y, a.z))
    EPWEAVE_TERNARY_OPS(EPWEAVE_OP)
#undef EPWEAVE_OP
#define EPWEAVE_OP(Name) EPWEAVE_CASE(Name, Name::apply(a.number, a.x, a.y, a.z))
    EPWEAVE_NUMBER_TERNARY_OPS(EPWEAVE_OP)
#undef EPWEAVE_OP
    default:
      return C(0);
  }
}
#undef EPWEAVE_CASE

// Whether a divisor of 0 is an error: integer division.
EPWEAVE_HD bool divides_integers(ElementOp op) {
  return op == ElementOp::kDiv || op == ElementOp::kFloorDiv || op == ElementOp::kTruncDiv ||
         op == ElementOp::kRemainder || op == ElementOp::kFmod;
}

}  // namespace epweave::math
