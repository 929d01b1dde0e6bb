// Bounds of elementary functions. x is what an operand is without rounding, X what was computed, B
// its bound: |X - x| <= B.
#include <algorithm>
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

// |log(X) - log(x)| is at most B / (X - B), where X - B is above 0; 0 where B is.
Tensor move_logarithm(const ErrorBounds& bounds, const Tensor& x, const Tensor& bound) {
  const Tensor least = bounds.apply(named::kSub, {x, bound});
  const Tensor moved =
      bounds.apply(named::kWhere, {bounds.apply(named::kGtNumber, {least, 0.0}),
                                   bounds.apply(named::kDiv, {bound, least}), bounds.unbounded(x.sizes)});
  return bounds.apply(named::kWhere, {bounds.apply(named::kEqNumber, {bound, 0.0}), bound, moved});
}

// x + a in x's type where that is wider: near -a the sum is exact.
Tensor add_to_operand(const ErrorBounds& bounds, const Tensor& x, double added) {
  const Tensor wide = x.dtype == DType::kFloat64 ? x : bounds.narrow(x);
  return bounds.narrow(bounds.apply(named::kAdd, {wide, added}));
}

// log(a + x); times `factor` of another base. a is `added`.
void bound_logarithm(ErrorBounds& bounds, const BoundedCall& call, double added, double factor) {
  if (call.op.writes) throw NoBound();
  const Tensor& x = tensor_at(call, 0);
  real_result(call);
  const Tensor moved = move_logarithm(bounds, add_to_operand(bounds, x, added), bounds.find_or_zero(x));
  set_computed(bounds, call, bounds.scale(moved, factor));
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

// How large what is not infinite is: a masked element is so in both graphs, and weighs nothing.
Tensor finite_magnitude(const ErrorBounds& bounds, const Tensor& x) {
  const Tensor size = bounds.magnitude(x);
  const Tensor is_finite = bounds.apply(named::kLtNumber, {size, std::numeric_limits<double>::infinity()});
  return bounds.apply(named::kWhere, {is_finite, size, bounds.zeros(size.sizes)});
}

// What the weights exp(x) / sum(exp(x)) of rows need. An element is *light* where its weight is
// below exp(-64) in either graph: what it is less the largest, moved up, is so far below another
// one, moved down. Such are those that a mask adds a large negative number to, and they may be off
// by as much as that number's rounding. The others alone say how far a row moves.
struct Weights {
  Value dims;
  std::int64_t terms = 1;  // of a row
  Tensor distance;         // of x and the largest of its row, where it is finite
  Tensor moved;            // how far x less the largest is off at most
  Tensor most;             // of its row that is not light
  Tensor gap;              // below 0: the logarithm of what a weight is at most
  Tensor is_light;
  // All light ones together are less than this of a row.
  double light_share() const { return static_cast<double>(terms) * 0x1p-92; }
};

Tensor find_largest(const ErrorBounds& bounds, const Tensor& x, const Value& dims) {
  return x.rank() == 0 || x.numel() == 0 ? x : bounds.apply(named::kAmax, {x, dims, true});
}

Weights find_weights(const ErrorBounds& bounds, const Tensor& x, const Value& dims, DType computed) {
  constexpr double kLightest = -64;
  constexpr double kGapRounding = 0x1p-20;  // of a few operations of float32
  Weights found{dims};
  if (x.rank() != 0)
    for (const Value& dim : dims.items()) found.terms *= x.size(dim.integer());
  const Tensor wide = x.dtype == DType::kFloat64 ? x : bounds.narrow(x);
  const Tensor below = bounds.narrow(bounds.apply(named::kSub, {wide, find_largest(bounds, wide, dims)}));
  found.distance = finite_magnitude(bounds, below);
  found.moved = bounds.add(bounds.find_or_zero(x), bounds.scale(found.distance, sum_error(1, computed)));
  const Tensor reach =
      bounds.scale(bounds.add(found.moved, bounds.scale(found.distance, kGapRounding)), 1 + kGapRounding);
  const Tensor lowest = find_largest(bounds, bounds.apply(named::kSub, {below, reach}), dims);
  found.gap = bounds.apply(named::kSub, {bounds.add(below, reach), lowest});
  found.is_light = bounds.apply(named::kLtNumber, {found.gap, kLightest});
  const Tensor heavy = bounds.apply(named::kWhere, {found.is_light, bounds.zeros(x.sizes), found.moved});
  found.most = find_largest(bounds, heavy, dims);
  return found;
}

// Each weight is off by what its element and the sum move: a light one by no more than it is.
Tensor bound_weights(const ErrorBounds& bounds, const Weights& of, const Tensor& result) {
  const double computed = sum_error(of.terms + 16, result.dtype) + of.light_share();
  const Tensor grown = expm1(bounds, bounds.add(of.moved, of.most));
  const Tensor off = bounds.apply(named::kAdd, {bounds.scale(grown, 1 + computed), computed});
  const Tensor bound = bounds.multiply(unrounded(bounds, result), off);
  const Tensor weight = bounds.scale(bounds.apply(named::kExp, {of.gap}), 1 + computed);
  return bounds.apply(named::kWhere, {of.is_light, bounds.apply(named::kFmin, {bound, weight}), bound});
}

// The logarithm of a row's sum is off by `most`, what moves most in it, and by the rounding of what
// it is added to and of what that gives, which may be as large as numbers are.
Tensor bound_logarithm_of_sum(const ErrorBounds& bounds, const Weights& of, const Tensor& most,
                              const Tensor& added, const Tensor& result) {
  const double computed = sum_error(of.terms + 16, result.dtype) + of.light_share();
  const Tensor rounded = bounds.add(bounds.scale(finite_magnitude(bounds, added), computed),
                                    bounds.scale(finite_magnitude(bounds, result), computed));
  return bounds.apply(named::kAdd, {bounds.add(most, rounded), computed});
}

}  // namespace

void bound_flat(ErrorBounds& bounds, const BoundedCall& call) {
  set_computed(bounds, call, bounds.find_or_zero(tensor_at(call, 0)));
}

void bound_nearly_flat(ErrorBounds& bounds, const BoundedCall& call) {
  constexpr double kSteepest = 1.13;  // erf at 0, 2 / root(pi); silu and mish are less steep
  set_computed(bounds, call, bounds.scale(bounds.find_or_zero(tensor_at(call, 0)), kSteepest));
}

// scale x above 0, below it scale alpha (exp(input_scale x) - 1), which is steepest at 0.
void bound_elu(ErrorBounds& bounds, const BoundedCall& call) {
  const double input_scale = number_at(call, 3), below = factor_at(call, 1) * input_scale;
  if (input_scale < 0) throw NoBound();
  const double steepest = factor_at(call, 2) * std::max(1.0, below);
  set_computed(bounds, call, bounds.scale(bounds.find_or_zero(tensor_at(call, 0)), steepest));
}

void bound_leaky_relu(ErrorBounds& bounds, const BoundedCall& call) {
  const double steepest = std::max(1.0, factor_at(call, 1));
  set_computed(bounds, call, bounds.scale(bounds.find_or_zero(tensor_at(call, 0)), steepest));
}

// log(1 + exp(beta x)) / beta, nowhere steeper than 1. Where beta x passes the threshold it steps
// down to x.
void bound_softplus(ErrorBounds& bounds, const BoundedCall& call) {
  const double beta = number_at(call, 1);
  if (beta <= 0) throw NoBound();
  const Tensor bound = bounds.find_or_zero(tensor_at(call, 0));
  const double step = std::log1p(std::exp(-number_at(call, 2))) / beta;
  const Tensor moved = bounds.apply(named::kAdd, {bound, step * (1 + kBoundSlack)});
  const Tensor is_exact = bounds.apply(named::kEqNumber, {bound, 0.0});
  set_computed(bounds, call, bounds.apply(named::kWhere, {is_exact, bound, moved}));
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

void bound_softmax(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = tensor_at(call, 0), &result = real_result(call);
  const Weights weights = find_weights(bounds, x, Value::list({call.args[1]}), result.dtype);
  set_rounded(bounds, result, bound_weights(bounds, weights, result));
}

// Zeros where a row is -inf altogether.
void bound_safe_softmax(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = tensor_at(call, 0), &result = real_result(call);
  const Value dims = Value::list({call.args[1]});
  const Weights weights = find_weights(bounds, x, dims, result.dtype);
  const Tensor largest = find_largest(bounds, bounds.narrow(x), dims);
  const Tensor is_masked =
      bounds.apply(named::kEqNumber, {largest, -std::numeric_limits<double>::infinity()});
  set_rounded(bounds, result,
              bounds.apply(named::kWhere, {is_masked, find_largest(bounds, bounds.find_or_zero(x), dims),
                                           bound_weights(bounds, weights, result)}));
}

// x less the logarithm of the sum of exp(x).
void bound_log_softmax(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = tensor_at(call, 0), &result = real_result(call);
  const Weights weights = find_weights(bounds, x, Value::list({call.args[1]}), result.dtype);
  const Tensor off = bound_logarithm_of_sum(bounds, weights, weights.most, weights.distance, result);
  set_rounded_of(bounds, call, bounds.add(weights.moved, off));
}

// -(t log(x) + (1 - t) log(1 - x)), in float64, where neither logarithm is below -100.
Tensor bound_cross_entropy_terms(const ErrorBounds& bounds, const BoundedCall& call) {
  constexpr double kLargestLogarithm = 100;
  if (!call.args[2].is_none()) throw NoBound();
  const Tensor &x = tensor_at(call, 0), &t = tensor_at(call, 1), bound = bounds.find_or_zero(x);
  const Tensor no = bounds.magnitude(bounds.apply(named::kSub, {add_to_operand(bounds, x, 0), 1.0}));
  const Tensor target = bounds.add(bounds.magnitude(t), bounds.find_or_zero(t));
  const Tensor other = bounds.apply(named::kAdd, {target, 1.0});
  const Tensor moved =
      bounds.add(bounds.multiply(target, move_logarithm(bounds, add_to_operand(bounds, x, 0), bound)),
                 bounds.multiply(other, move_logarithm(bounds, no, bound)));
  const Tensor computed = bounds.scale(other, 2 * kLargestLogarithm * sum_error(8, DType::kFloat64));
  return bounds.add(bounds.add(moved, computed), bounds.scale(bounds.find_or_zero(t), 2 * kLargestLogarithm));
}

void bound_logsumexp(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = tensor_at(call, 0), &result = real_result(call);
  const Weights weights = find_weights(bounds, x, call.args[1], result.dtype);
  const auto largest = [&](const Tensor& of) {
    return x.rank() == 0 ? of : bounds.apply(named::kAmax, {of, call.args[1], call.args[2]});
  };
  const Tensor most = largest(bounds.add(weights.most, bounds.zeros(x.sizes)));
  set_rounded(bounds, result,
              bound_logarithm_of_sum(bounds, weights, most, largest(bounds.narrow(x)), result));
}

// Element i moves no further than the element up to it that moves most. Each step of the kernel,
// in float64, rounds the larger of two logarithms and less than 1 that is added to it.
void bound_logcumsumexp(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = tensor_at(call, 0), &result = real_result(call);
  const Value& dim = call.args[1];
  const Tensor steps = bounds.apply(named::kAdd, {finite_magnitude(bounds, result), 1.0});
  const Tensor computed =
      bounds.scale(bounds.apply(named::kCumsum, {steps, dim}), 2 * sum_error(8, DType::kFloat64));
  const Tensor bound = bounds.find_or_zero(x);
  const Tensor most = bounds.ops().run(*find_op(named::kCummax), {bound, dim}).items().at(0).tensor();
  set_rounded_of(bounds, call, bounds.add(most, computed));
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
