// Ops that map each element: arithmetic, comparisons, bitwise, where, activations and their derivatives.
//
// Rounding: the 16-bit floats are computed in float32 and rounded once. a + alpha * b is one fused
// multiply-add. A quotient is one division. Complex products are written out, without fusing.
#include <cmath>
#include <limits>

#include "ir/promotion.h"
#include "replay/cpu/kernels.h"
#include "replay/cpu/operands.h"
#include "replay/cpu/vector_math.h"

namespace epweave::replay::cpu {
namespace {

[[noreturn]] void refuse(const KernelCall& call, DType dtype) {
  throw KernelError(std::string(call.op().target) + " is not defined for " + std::string(info(dtype).name));
}

template <class C>
constexpr bool is_int = std::is_same_v<C, std::int64_t>;
template <class C>
constexpr bool is_complex_type = std::is_same_v<C, Complex>;
template <class C>
constexpr bool is_real_float = std::is_same_v<C, float> || std::is_same_v<C, double>;

std::int64_t wrapping_mul(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
std::int64_t wrapping_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
std::int64_t wrapping_neg(std::int64_t a) {
  return static_cast<std::int64_t>(0u - static_cast<std::uint64_t>(a));
}
std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) throw KernelError("integer division by zero");
  if (b == -1) return wrapping_neg(a);
  const std::int64_t q = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? q - 1 : q;
}

// torch's div_floor: Python's floor division of floats.
template <class C>
C floor_quotient(C a, C b) {
  if (b == 0) return a / b;
  C mod = std::fmod(a, b);
  C div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1;
  if (div == 0) return std::copysign(C(0), a / b);
  C floored = std::floor(div);
  if (div - floored > C(0.5)) floored += 1;
  return floored;
}
template <class C>
C python_remainder(C a, C b) {
  if constexpr (is_int<C>) {
    return wrapping_add(a, wrapping_neg(wrapping_mul(floor_quotient(a, b), b)));
  } else {
    C mod = std::fmod(a, b);
    if (mod != 0 && (b < 0) != (mod < 0)) mod += b;
    return mod;
  }
}

// ---- operations ---------------------------------------------------------------------------
// `apply` is written for the compute types of `allows`.

struct AnyType {
  template <class C>
  static constexpr bool allows = true;
};
struct NotComplex {
  template <class C>
  static constexpr bool allows = !is_complex_type<C>;
};
struct FloatOnly {
  template <class C>
  static constexpr bool allows = is_real_float<C>;
};
struct IntOnly {
  template <class C>
  static constexpr bool allows = is_int<C>;
};

struct Mul : AnyType {
  template <class C>
  static C apply(C a, C b) {
    if constexpr (is_int<C>)
      return wrapping_mul(a, b);
    else if constexpr (is_complex_type<C>)
      return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    else
      return a * b;
  }
};
struct Div : AnyType {
  template <class C>
  static C apply(C a, C b) {
    if constexpr (is_int<C>)
      return floor_quotient(a, b);
    else if constexpr (is_complex_type<C>) {
      const float norm = b.real() * b.real() + b.imag() * b.imag();
      return {(a.real() * b.real() + a.imag() * b.imag()) / norm,
              (a.imag() * b.real() - a.real() * b.imag()) / norm};
    } else
      return a / b;
  }
};
struct FloorDiv : NotComplex {
  template <class C>
  static C apply(C a, C b) {
    return floor_quotient(a, b);
  }
};
struct Remainder : NotComplex {
  template <class C>
  static C apply(C a, C b) {
    return python_remainder(a, b);
  }
};
struct Fmod : NotComplex {
  template <class C>
  static C apply(C a, C b) {
    if constexpr (is_int<C>) {
      if (b == 0) throw KernelError("integer division by zero");
      return b == -1 ? 0 : a % b;
    } else
      return std::fmod(a, b);
  }
};
struct Maximum : NotComplex {
  template <class C>
  static C apply(C a, C b) {
    return a != a ? a : b != b ? b : a < b ? b : a;
  }
};
struct Minimum : NotComplex {
  template <class C>
  static C apply(C a, C b) {
    return a != a ? a : b != b ? b : b < a ? b : a;
  }
};
struct BitAnd : IntOnly {
  static std::int64_t apply(std::int64_t a, std::int64_t b) { return a & b; }
};
struct BitOr : IntOnly {
  static std::int64_t apply(std::int64_t a, std::int64_t b) { return a | b; }
};
struct BitXor : IntOnly {
  static std::int64_t apply(std::int64_t a, std::int64_t b) { return a ^ b; }
};
struct ShiftLeft : IntOnly {
  static std::int64_t apply(std::int64_t a, std::int64_t b) {
    return b < 0 || b > 63 ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << b);
  }
};
struct ShiftRight : IntOnly {
  static std::int64_t apply(std::int64_t a, std::int64_t b) {
    return b < 0 || b > 63 ? (a < 0 ? -1 : 0) : a >> b;
  }
};

struct Equal : AnyType {
  template <class C>
  static bool test(C a, C b) {
    return a == b;
  }
};
struct NotEqual : AnyType {
  template <class C>
  static bool test(C a, C b) {
    return a != b;
  }
};
struct Less : NotComplex {
  template <class C>
  static bool test(C a, C b) {
    return a < b;
  }
};
struct LessEqual : NotComplex {
  template <class C>
  static bool test(C a, C b) {
    return a <= b;
  }
};
struct Greater : NotComplex {
  template <class C>
  static bool test(C a, C b) {
    return a > b;
  }
};
struct GreaterEqual : NotComplex {
  template <class C>
  static bool test(C a, C b) {
    return a >= b;
  }
};
struct LogicalAnd : AnyType {
  template <class C>
  static bool test(C a, C b) {
    return a != C(0) && b != C(0);
  }
};
struct LogicalOr : AnyType {
  template <class C>
  static bool test(C a, C b) {
    return a != C(0) || b != C(0);
  }
};
struct LogicalXor : AnyType {
  template <class C>
  static bool test(C a, C b) {
    return (a != C(0)) != (b != C(0));
  }
};

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

template <class Op, class F>
void compute(const KernelCall& call, DType common, const F& f) {
  with_compute(common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    if constexpr (Op::template allows<C>)
      f(tag);
    else
      refuse(call, common);
  });
}

template <class Op, class Where>
Value binary_as(KernelCall& call, DType common) {
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common);
  const Tensor out = Where::target(call, common, {&a, &b});
  compute<Op>(call, common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    map_elements<C, C, 2>(out, {&a, &b}, [](C x, C y) { return Op::apply(x, y); });
  });
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
struct TruncDiv : NotComplex {
  template <class C>
  static C apply(C a, C b) {
    if constexpr (is_int<C>) {
      if (b == 0) throw KernelError("integer division by zero");
      return b == -1 ? wrapping_neg(a) : a / b;
    } else
      return std::trunc(a / b);
  }
};
Value divide_with_mode(KernelCall& call) {
  if (call[2].is_none()) return divide<>(call);
  if (call[2].as<Text>().text == "floor") return binary<FloorDiv>(call);
  return binary<TruncDiv>(call);
}

// a + alpha * b
enum class Sign { kPlus, kMinus };
template <Sign sign, class Where>
Value add(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common);
  const Tensor out = Where::target(call, common, {&a, &b});
  with_compute(common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const C alpha = sign == Sign::kPlus ? number_as<C>(call[2]) : C(0) - number_as<C>(call[2]);
    map_elements<C, C, 2>(out, {&a, &b}, [&](C x, C y) -> C {
      if constexpr (is_int<C>)
        return wrapping_add(x, wrapping_mul(alpha, y));
      else if constexpr (is_complex_type<C>)
        return x + Mul::apply(alpha, y);
      else
        return alpha == C(1) ? x + y : alpha == C(-1) ? x - y : math::fma(alpha, y, x);
    });
  });
  return out;
}
// other - alpha * self
Value reverse_sub(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common);
  const Tensor out = result_like(call, common, {&a, &b});
  with_compute(common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const C alpha = number_as<C>(call[2]);
    map_elements<C, C, 2>(out, {&a, &b}, [&](C x, C y) -> C {
      if constexpr (is_int<C>)
        return wrapping_add(y, wrapping_neg(wrapping_mul(alpha, x)));
      else if constexpr (is_complex_type<C>)
        return y - Mul::apply(alpha, x);
      else
        return math::fma(-alpha, x, y);
    });
  });
  return out;
}

template <class Op, class Where = Fresh>
Value compare(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common);
  const Tensor out = Where::target(call, DType::kBool, {&a, &b});
  compute<Op>(call, common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    map_elements<C, std::int64_t, 2>(out, {&a, &b},
                                     [](C x, C y) { return std::int64_t{Op::test(x, y) ? 1 : 0}; });
  });
  return out;
}

// value * t1 * t2 or value * t1 / t2, added to self.
template <bool kDivides, class Where>
Value add_product(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1, 2});
  const Tensor self = operand(call, 0, common), a = operand(call, 1, common), b = operand(call, 2, common);
  const Tensor out = Where::target(call, common, {&self, &a, &b});
  with_floating(common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    const C value = number_as<C>(call[3]);
    map_elements<C, C, 3>(out, {&self, &a, &b}, [&](C x, C y, C z) {
      return kDivides ? x + value * y / z : math::fma(value * y, z, x);
    });
  });
  return out;
}

template <class Where>
Value lerp(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor a = operand(call, 0, common), b = operand(call, 1, common), w = operand(call, 2, common);
  const Tensor out = Where::target(call, common, {&a, &b, &w});
  with_floating(common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    map_elements<C, C, 3>(out, {&a, &b, &w}, [](C x, C y, C t) {
      return math::abs(t) < C(0.5) ? x + t * (y - x) : y - (y - x) * (C(1) - t);
    });
  });
  return out;
}

// ---- one operand --------------------------------------------------------------------------

template <class Op, class Where>
Value unary_as(KernelCall& call, DType common) {
  const Tensor a = operand(call, 0, common);
  const Tensor out = Where::target(call, common, {&a});
  compute<Op>(call, common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    map_elements<C, C, 1>(out, {&a}, [](C x) { return Op::apply(x); });
  });
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
  compute<Op>(call, a.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    map_elements<C, std::int64_t, 1>(out, {&a}, [](C x) { return std::int64_t{Op::test(x) ? 1 : 0}; });
  });
  return out;
}

struct Neg : AnyType {
  template <class C>
  static C apply(C x) {
    if constexpr (is_int<C>)
      return wrapping_neg(x);
    else
      return -x;
  }
};
struct Abs : NotComplex {
  template <class C>
  static C apply(C x) {
    if constexpr (is_int<C>)
      return x < 0 ? wrapping_neg(x) : x;
    else
      return math::abs(x);
  }
};
struct Square : AnyType {
  template <class C>
  static C apply(C x) {
    return Mul::apply(x, x);
  }
};
struct Conjugate : AnyType {
  template <class C>
  static C apply(C x) {
    if constexpr (is_complex_type<C>)
      return {x.real(), -x.imag()};
    else
      return x;
  }
};
struct Relu : NotComplex {
  template <class C>
  static C apply(C x) {
    return x < C(0) ? C(0) : x;  // keeps -0.0 and NaN
  }
};
struct SignOf : NotComplex {
  template <class C>
  static C apply(C x) {
    return x > C(0) ? C(1) : x < C(0) ? C(-1) : C(0);  // NaN: 0
  }
};
struct LogicalNot : AnyType {
  template <class C>
  static bool test(C x) {
    return x == C(0);
  }
};
struct IsNan : NotComplex {
  template <class C>
  static bool test(C x) {
    return x != x;
  }
};
struct IsInf : NotComplex {
  template <class C>
  static bool test(C x) {
    if constexpr (is_int<C>)
      return false;
    else
      return math::abs(x) == std::numeric_limits<C>::infinity();
  }
};
struct Floor : NotComplex {
  template <class C>
  static C apply(C x) {
    if constexpr (is_int<C>)
      return x;
    else
      return std::floor(x);
  }
};
struct Ceil : NotComplex {
  template <class C>
  static C apply(C x) {
    if constexpr (is_int<C>)
      return x;
    else
      return std::ceil(x);
  }
};
struct Trunc : NotComplex {
  template <class C>
  static C apply(C x) {
    if constexpr (is_int<C>)
      return x;
    else
      return std::trunc(x);
  }
};
struct Round : NotComplex {  // halves to even
  template <class C>
  static C apply(C x) {
    if constexpr (is_int<C>)
      return x;
    else
      return std::nearbyint(x);
  }
};
struct LogOf : FloatOnly {
  template <class C>
  static C apply(C x) {
    return math::log(x);
  }
};
struct Sin : FloatOnly {
  template <class C>
  static C apply(C x) {
    return math::sin(x);
  }
};
struct Cos : FloatOnly {
  template <class C>
  static C apply(C x) {
    return math::cos(x);
  }
};
struct Sqrt : FloatOnly {
  template <class C>
  static C apply(C x) {
    return math::sqrt(x);
  }
};
struct Rsqrt : FloatOnly {
  template <class C>
  static C apply(C x) {
    return math::rsqrt(x);
  }
};
struct Tanh : FloatOnly {
  template <class C>
  static C apply(C x) {
    return math::tanh(x);
  }
};
struct Reciprocal : FloatOnly {
  template <class C>
  static C apply(C x) {
    return C(1) / x;
  }
};
struct ExpOf {
  static void run(std::int64_t n, float* out, const float* in) { exp_run(n, out, in); }
  static double apply(double x) { return math::exp(x); }
};
struct SigmoidOf {
  static void run(std::int64_t n, float* out, const float* in) { sigmoid_run(n, out, in); }
  static double apply(double x) { return math::sigmoid(x); }
};
struct SiluOf {
  static void run(std::int64_t n, float* out, const float* in) { silu_run(n, out, in); }
  static double apply(double x) { return math::silu(x); }
};

// Functions with a vector form.
template <class Op, class Where = Fresh>
Value transcendental(KernelCall& call) {
  const DType common = to_float(call.tensor(0).dtype);
  const Tensor a = operand(call, 0, common);
  const Tensor out = Where::target(call, common, {&a});
  with_floating(common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    if constexpr (std::is_same_v<C, float>)
      map_runs<C, C, 1>(out, {&a}, [](std::int64_t n, float* to, const float* in) { Op::run(n, to, in); });
    else
      map_elements<C, C, 1>(out, {&a}, [](C x) { return Op::apply(x); });
  });
  return out;
}

Value bitwise_not(KernelCall& call) {
  const Tensor& a = call.tensor(0);
  if (a.dtype == DType::kBool) return test_each<LogicalNot>(call);
  if (compute_of(a.dtype) != Compute::kInt) refuse(call, a.dtype);
  const Tensor out = result_like(call, a.dtype, {&a});
  map_elements<std::int64_t, std::int64_t, 1>(out, {&a}, [](std::int64_t x) { return ~x; });
  return out;
}

// ---- derivatives --------------------------------------------------------------------------

Value silu_backward(KernelCall& call) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor grad = operand(call, 0, common), self = operand(call, 1, common);
  const Tensor out = result_like(call, common, {&grad, &self});
  with_floating(common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    if constexpr (std::is_same_v<C, float>)
      map_runs<C, C, 2>(out, {&grad, &self}, [](std::int64_t n, float* to, const float* g, const float* x) {
        silu_backward_run(n, to, g, x);
      });
    else
      map_elements<C, C, 2>(out, {&grad, &self}, [](C g, C x) { return math::silu_backward(g, x); });
  });
  return out;
}

template <class F>
Value backward_of(KernelCall& call, const F& f) {
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor grad = operand(call, 0, common), saved = operand(call, 1, common);
  const Tensor out = result_like(call, common, {&grad, &saved});
  with_floating(common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    map_elements<C, C, 2>(out, {&grad, &saved}, f);
  });
  return out;
}
Value sigmoid_backward(KernelCall& call) {
  return backward_of(call, [](auto g, auto y) { return g * (1 - y) * y; });
}
Value tanh_backward(KernelCall& call) {
  return backward_of(call, [](auto g, auto y) { return g * (1 - y * y); });
}
Value threshold_backward(KernelCall& call) {
  const double threshold = call.real(2);
  return backward_of(call, [&](auto g, auto x) {
    using C = decltype(g);
    return x <= static_cast<C>(threshold) ? C(0) : g;
  });
}

// ---- selection ----------------------------------------------------------------------------

// condition, a, b: the condition is a tensor of bool.
Value select_elements(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& out) {
  with_compute(out.dtype, [&](auto tag) {
    using C = typename decltype(tag)::type;
    // The condition travels as the compute type: 0 or 1.
    map_elements<C, C, 3>(out, {&condition, &a, &b}, [](C c, C x, C y) { return c != C(0) ? x : y; });
  });
  return out;
}
Value where(KernelCall& call) {
  const DType common = promoted_dtype(call, {1, 2});
  const Tensor a = operand(call, 1, common), b = operand(call, 2, common);
  const Tensor& condition = call.tensor(0);
  return select_elements(condition, a, b, result_like(call, common, {&condition, &a, &b}));
}
template <class Where>
Value masked_fill(KernelCall& call) {
  const Tensor& self = call.tensor(0);
  const Tensor& mask = call.tensor(1);
  const Tensor value = operand(call, 2, self.dtype);
  const Tensor out = Where::target(call, self.dtype, {&self, &mask});
  return select_elements(mask, value, self, out);
}

// Bounds may be None. NaN stays; a NaN bound wins.
template <class Where>
Value clamp(KernelCall& call) {
  const bool has_low = !call[1].is_none(), has_high = !call[2].is_none();
  const DType common = has_low && has_high ? promoted_dtype(call, {0, 1, 2})
                       : has_low           ? promoted_dtype(call, {0, 1})
                                           : promoted_dtype(call, {0, 2});
  const Tensor self = operand(call, 0, common);
  const Tensor low = has_low ? operand(call, 1, common) : self;
  const Tensor high = has_high ? operand(call, 2, common) : self;
  const Tensor out = Where::target(call, common, {&self, &low, &high});
  compute<NotComplex>(call, common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    if constexpr (!is_complex_type<C>)
      map_elements<C, C, 3>(out, {&self, &low, &high}, [&](C x, C l, C h) {
        if (x != x || l != l || h != h) return x != x ? x : l != l ? l : h;
        if (has_low && x < l) x = l;
        return has_high && h < x ? h : x;
      });
  });
  return out;
}

Value pow_number(KernelCall& call) {
  const double exponent = call.real(1);
  const DType common = promoted_dtype(call, {0, 1});
  const Tensor a = operand(call, 0, common);
  const Tensor out = result_like(call, common, {&a});
  compute<NotComplex>(call, common, [&](auto tag) {
    using C = typename decltype(tag)::type;
    if constexpr (is_real_float<C>) {
      const auto with = [&](auto f) { map_elements<C, C, 1>(out, {&a}, f); };
      if (exponent == 2)
        with([](C x) { return x * x; });
      else if (exponent == 3)
        with([](C x) { return x * x * x; });
      else if (exponent == 1)
        with([](C x) { return x; });
      else if (exponent == 0)
        with([](C) { return C(1); });
      else if (exponent == 0.5)
        with([](C x) { return math::sqrt(x); });
      else if (exponent == -0.5)
        with([](C x) { return math::rsqrt(x); });
      else if (exponent == -1)
        with([](C x) { return C(1) / x; });
      else if (exponent == -2)
        with([](C x) { return C(1) / (x * x); });
      else
        throw KernelError("portable math has powers -2, -1, -0.5, 0, 0.5, 1, 2 and 3, not " +
                          std::to_string(exponent));
    } else if constexpr (is_int<C>) {
      std::int64_t n = call.integer(1);
      if (n < 0) throw KernelError("integers to negative powers are not allowed");
      map_elements<C, C, 1>(out, {&a}, [&](C x) {
        C y = 1;
        for (std::int64_t i = 0; i < n && i < 64; ++i) y = wrapping_mul(y, x);
        return y;
      });
    }
  });
  return out;
}

constexpr KernelRow kRows[] = {
    {"aten.__and__.Tensor", binary<BitAnd>},
    {"aten.__lshift__.Scalar", binary<ShiftLeft>},
    {"aten.__or__.Tensor", binary<BitOr>},
    {"aten.__rshift__.Scalar", binary<ShiftRight>},
    {"aten._conj.default", unary<Conjugate>},  // a copy: tensors here have no lazy conjugation
    {"aten.abs.default", unary<Abs>},
    {"aten.add.Scalar", add<Sign::kPlus, Fresh>},
    {"aten.add.Tensor", add<Sign::kPlus, Fresh>},
    {"aten.add_.Scalar", add<Sign::kPlus, InPlace>},
    {"aten.add_.Tensor", add<Sign::kPlus, InPlace>},
    {"aten.addcdiv.default", add_product<true, Fresh>},
    {"aten.addcdiv_.default", add_product<true, InPlace>},
    {"aten.addcmul.default", add_product<false, Fresh>},
    {"aten.addcmul_.default", add_product<false, InPlace>},
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
    {"aten.exp.default", transcendental<ExpOf>},
    {"aten.exp_.default", transcendental<ExpOf, InPlace>},
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
    {"aten.rsub.Scalar", reverse_sub},
    {"aten.rsub.Tensor", reverse_sub},
    {"aten.sigmoid.default", transcendental<SigmoidOf>},
    {"aten.sigmoid_.default", transcendental<SigmoidOf, InPlace>},
    {"aten.sigmoid_backward.default", sigmoid_backward},
    {"aten.sign.default", unary<SignOf>},
    {"aten.silu.default", transcendental<SiluOf>},
    {"aten.silu_.default", transcendental<SiluOf, InPlace>},
    {"aten.silu_backward.default", silu_backward},
    {"aten.sin.default", unary_float<Sin>},
    {"aten.sqrt.default", unary_float<Sqrt>},
    {"aten.sqrt_.default", unary_float<Sqrt, InPlace>},
    {"aten.square.default", unary<Square>},
    {"aten.sub.Scalar", add<Sign::kMinus, Fresh>},
    {"aten.sub.Tensor", add<Sign::kMinus, Fresh>},
    {"aten.sub_.Scalar", add<Sign::kMinus, InPlace>},
    {"aten.sub_.Tensor", add<Sign::kMinus, InPlace>},
    {"aten.tanh.default", unary_float<Tanh>},
    {"aten.tanh_backward.default", tanh_backward},
    {"aten.threshold_backward.default", threshold_backward},
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
