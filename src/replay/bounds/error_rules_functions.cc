// Bounds of elementary functions. x is what an operand is without rounding, X what was computed, B
// its bound: |X - x| <= B.
#include <cmath>
#include <limits>

#include "replay/bounds/error_rules.h"

namespace epweave::replay {
namespace {

// Of a function that portable math computes within 4 units of the last place, in float64 within 16
// (portable_math.h, special_functions.h).
Tensor computed_within(const ErrorBounds& bounds, const Tensor& result) {
  const std::int64_t units = result.dtype == DType::kFloat64 ? 16 : 4;
  return bounds.scale(bounds.magnitude(result), sum_error(2 * units - 2, result.dtype));
}

const Tensor& real_result(const BoundedCall& call) {
  const Tensor& result = only_result(call);
  if (!is_floating(result.dtype) || is_complex(tensor_at(call, 0).dtype)) throw NoBound();
  return result;
}

void set_computed(ErrorBounds& bounds, const BoundedCall& call, const Tensor& moved) {
  const Tensor& result = real_result(call);
  set_rounded(bounds, result, bounds.add(moved, computed_within(bounds, result)));
}

Tensor expm1(const ErrorBounds& bounds, const Tensor& x) {
  return bounds.apply(named::kExpm1, {x});
}

// |log(a + X) - log(a + x)| is at most B / (a + X - B), where that is above 0; times `factor` of
// another base. a is `added`, first and in X's type where that is wider: near -a the sum is exact.
void bound_logarithm(ErrorBounds& bounds, const BoundedCall& call, double added, double factor) {
  if (call.op.writes) throw NoBound();
  const Tensor& x = tensor_at(call, 0);
  real_result(call);
  const Tensor bound = bounds.find_or_zero(x), wide = x.dtype == DType::kFloat64 ? x : bounds.narrow(x);
  const Tensor sum = bounds.narrow(bounds.apply(named::kAdd, {wide, added}));
  const Tensor least = bounds.apply(named::kSub, {sum, bound});
  const Tensor moved =
      bounds.apply(named::kWhere, {bounds.apply(named::kGtNumber, {least, 0.0}),
                                   bounds.scale(bounds.apply(named::kDiv, {bound, least}), factor),
                                   bounds.unbounded(x.sizes)});
  const Tensor is_exact = bounds.apply(named::kEqNumber, {bound, 0.0});
  set_computed(bounds, call, bounds.apply(named::kWhere, {is_exact, bound, moved}));
}

// What a result is at most before it was rounded.
Tensor unrounded(const ErrorBounds& bounds, const Tensor& result) {
  return bounds.add(bounds.magnitude(result), bounds.round_off(result));
}

// exp(f X) is off by at most exp(f X) (exp(f B) - 1); f is `factor`.
void bound_exponential(ErrorBounds& bounds, const BoundedCall& call, double factor) {
  const Tensor grown = expm1(bounds, bounds.scale(bounds.find_or_zero(tensor_at(call, 0)), factor));
  set_computed(bounds, call, bounds.multiply(unrounded(bounds, only_result(call)), grown));
}

// The largest along the dimension of a softmax, which the result of a reduction keeps.
Tensor largest(const ErrorBounds& bounds, const BoundedCall& call, const Tensor& x) {
  if (x.rank() == 0 || x.numel() == 0) return x;
  return bounds.apply(named::kAmax, {x, Value::list({call.args[1]}), true});
}

// How large what is not infinite is: a masked element is so in both graphs, and weighs nothing.
Tensor finite_magnitude(const ErrorBounds& bounds, const Tensor& x) {
  const Tensor size = bounds.magnitude(x);
  const Tensor is_finite = bounds.apply(named::kLtNumber, {size, std::numeric_limits<double>::infinity()});
  return bounds.apply(named::kWhere, {is_finite, size, bounds.zeros(size.sizes)});
}

}  // namespace

void bound_flat(ErrorBounds& bounds, const BoundedCall& call) {
  set_computed(bounds, call, bounds.find_or_zero(tensor_at(call, 0)));
}

void bound_nearly_flat(ErrorBounds& bounds, const BoundedCall& call) {
  constexpr double kSteepest = 1.13;  // erf at 0, 2 / root(pi); silu and mish are less steep
  set_computed(bounds, call, bounds.scale(bounds.find_or_zero(tensor_at(call, 0)), kSteepest));
}

// No steeper than 1.13, at the root of 2. x and what it is multiplied by are rounded apart: for x
// below 0 that may be all of the result.
void bound_gelu(ErrorBounds& bounds, const BoundedCall& call) {
  if (call.op.writes) throw NoBound();
  constexpr double kSteepest = 1.13;
  const Tensor &x = tensor_at(call, 0), &result = real_result(call);
  const Tensor moved = bounds.scale(bounds.find_or_zero(x), kSteepest);
  set_rounded(bounds, result,
              bounds.add(moved, bounds.scale(bounds.magnitude(x), sum_error(14, result.dtype))));
}

// sinh and cosh are nowhere steeper than exp(|x|).
void bound_hyperbolic(ErrorBounds& bounds, const BoundedCall& call) {
  if (call.op.writes) throw NoBound();
  const Tensor &x = tensor_at(call, 0), bound = bounds.find_or_zero(x);
  const Tensor steepest =
      bounds.apply(named::kAdd, {expm1(bounds, bounds.add(bounds.magnitude(x), bound)), 1.0});
  const Tensor moved = bounds.scale(bounds.multiply(steepest, bound), 1 + kBoundSlack);
  const Tensor is_exact = bounds.apply(named::kEqNumber, {bound, 0.0});
  set_computed(bounds, call, bounds.apply(named::kWhere, {is_exact, bound, moved}));
}

// Where no element of a row moves further than M, each weight exp(x) / sum(exp(x)) stays within
// factors exp(-2 M) and exp(2 M). It is computed of x - max(x), which is rounded, too.
void bound_softmax(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = tensor_at(call, 0), &result = real_result(call);
  const double u = sum_error(1, result.dtype);
  const Tensor moved = bounds.add(bounds.find_or_zero(x), bounds.scale(finite_magnitude(bounds, x), u));
  const Tensor grown = expm1(bounds, bounds.scale(largest(bounds, call, moved), 2));
  const double computed = sum_error(extent_along(x, call.args[1]) + 16, result.dtype);
  const Tensor off = bounds.apply(named::kAdd, {bounds.scale(grown, 1 + computed), computed});
  set_rounded(bounds, result, bounds.multiply(unrounded(bounds, result), off));
}

// x less the logarithm of the sum of exp(x), which moves no further than what moves most.
void bound_log_softmax(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = tensor_at(call, 0), &result = real_result(call);
  const Tensor bound = bounds.find_or_zero(x);
  const double computed = sum_error(extent_along(x, call.args[1]) + 16, result.dtype);
  const Tensor sizes =
      bounds.add(largest(bounds, call, finite_magnitude(bounds, x)), unrounded(bounds, result));
  const Tensor off =
      bounds.add(bounds.scale(sizes, computed), bounds.add(bound, largest(bounds, call, bound)));
  set_rounded(bounds, result, bounds.apply(named::kAdd, {off, computed}));
}

void bound_exp(ErrorBounds& bounds, const BoundedCall& call) {
  bound_exponential(bounds, call, 1);
}
void bound_exp2(ErrorBounds& bounds, const BoundedCall& call) {
  bound_exponential(bounds, call, std::log(2.0));
}
// |exp(X) - exp(x)| is at most exp(X) (exp(B) - 1), and exp(X) is 1 more than what is computed.
void bound_expm1(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor power = bounds.apply(named::kAdd, {unrounded(bounds, only_result(call)), 1.0});
  set_computed(bounds, call, bounds.multiply(power, expm1(bounds, bounds.find_or_zero(tensor_at(call, 0)))));
}

void bound_log(ErrorBounds& bounds, const BoundedCall& call) {
  bound_logarithm(bounds, call, 0, 1);
}
void bound_log1p(ErrorBounds& bounds, const BoundedCall& call) {
  bound_logarithm(bounds, call, 1, 1);
}
void bound_log2(ErrorBounds& bounds, const BoundedCall& call) {
  bound_logarithm(bounds, call, 0, 1 / std::log(2.0));
}

}  // namespace epweave::replay
