// What the rules of error_rules.cc and of error_rules_backward.cc, error_rules_choices.cc,
// error_rules_functions.cc and error_rules_step.cc share, and the rules of the latter four.
#pragma once

#include <optional>

#include "ops/op.h"
#include "replay/bounds/error_bounds.h"

namespace epweave::replay {

// Of a sum of n terms, relative to the computed sum of magnitudes, which is itself off by as much.
// Throws NoBound where n is so large that it says nothing.
double sum_error(std::int64_t terms, DType dtype);

// Of a sum of n squares or magnitudes, and of its root, relative to what was computed. No term is
// below 0, and in the order of math/sum_order.h each is in a few of the additions alone.
double norm_error(std::int64_t terms, DType dtype);

// Argument `param`. Throws NoBound if it is no tensor.
const Tensor& tensor_at(const BoundedCall& call, std::size_t param);
// Elements along a dimension, which is an argument. A scalar is one along its own.
inline std::int64_t extent_along(const Tensor& tensor, const Value& dim) {
  return tensor.rank() == 0 ? 1 : tensor.size(dim.integer());
}

// Argument `param`, and its absolute value. Throws NoBound if it is no number.
double number_at(const BoundedCall& call, std::size_t param);
double factor_at(const BoundedCall& call, std::size_t param);

// error |x| + (1 + error) bound(x)
Tensor widen(const ErrorBounds& bounds, const Tensor& x, double error);

// Throws NoBound if the result is no tensor.
const Tensor& only_result(const BoundedCall& call);

// Sets `bound`, and what rounding the result itself adds.
void set_rounded(ErrorBounds& bounds, const Tensor& result, const Tensor& bound);
// The same of a call whose result is infinite where an operand is, as what a mask is added to. What
// is infinite and has a finite bound is so without rounding, too: there the result is exact.
void set_rounded_of(ErrorBounds& bounds, const BoundedCall& call, const Tensor& bound);

// Runs an op with all its arguments, giving all its results.
Value run_op(ErrorBounds& bounds, const OpInfo& op, std::vector<Value> args);

// Whether the call wrote its result over argument `param`.
bool writes_argument(const BoundedCall& call, std::size_t param);
// How large the elements that the call read of the argument are at most; where it wrote over them,
// by what they were without rounding. Throws NoBound if that is not known.
Tensor magnitude_at(const ErrorBounds& bounds, const BoundedCall& call, std::size_t param);

// Whether the op gives the conjugates of its operand's elements.
bool is_conjugation(const OpInfo& op);

// Throws NoBound where an element that may be off, by `bound`, is not decided.
void require_decided(const ErrorBounds& bounds, const Tensor& is_decided, const Tensor& bound);

// Gradients with respect to inputs. They are linear in the incoming gradient, which alone may have
// a bound: the saved activations must be the same bits in both graphs, else there is no bound.
void bound_rms_norm_backward(ErrorBounds& bounds, const BoundedCall& call);
void bound_layer_norm_backward(ErrorBounds& bounds, const BoundedCall& call);
void bound_activation_backward(ErrorBounds& bounds, const BoundedCall& call);
void bound_softmax_backward(ErrorBounds& bounds, const BoundedCall& call);
void bound_log_softmax_backward(ErrorBounds& bounds, const BoundedCall& call);
void bound_flex_attention_backward(ErrorBounds& bounds, const BoundedCall& call);
void bound_dot_product_backward(ErrorBounds& bounds, const BoundedCall& call);

// Of what clips gradients and steps an optimizer.
void bound_addcdiv(ErrorBounds& bounds, const BoundedCall& call);
void bound_addcmul(ErrorBounds& bounds, const BoundedCall& call);
void bound_clamp(ErrorBounds& bounds, const BoundedCall& call);
void bound_comparison(ErrorBounds& bounds, const BoundedCall& call);
void bound_div(ErrorBounds& bounds, const BoundedCall& call);
void bound_extreme(ErrorBounds& bounds, const BoundedCall& call);
void bound_is_finite(ErrorBounds& bounds, const BoundedCall& call);
void bound_lerp(ErrorBounds& bounds, const BoundedCall& call);
void bound_power(ErrorBounds& bounds, const BoundedCall& call);
void bound_reciprocal(ErrorBounds& bounds, const BoundedCall& call);
void bound_rsqrt(ErrorBounds& bounds, const BoundedCall& call);
void bound_sqrt(ErrorBounds& bounds, const BoundedCall& call);
void bound_square(ErrorBounds& bounds, const BoundedCall& call);
void bound_vector_norm(ErrorBounds& bounds, const BoundedCall& call);

// Of elementary functions: those that nowhere move further than their operand, those that move
// little further, and others.
void bound_flat(ErrorBounds& bounds, const BoundedCall& call);
void bound_nearly_flat(ErrorBounds& bounds, const BoundedCall& call);
void bound_gelu(ErrorBounds& bounds, const BoundedCall& call);
void bound_elu(ErrorBounds& bounds, const BoundedCall& call);
void bound_leaky_relu(ErrorBounds& bounds, const BoundedCall& call);
void bound_softplus(ErrorBounds& bounds, const BoundedCall& call);
void bound_hyperbolic(ErrorBounds& bounds, const BoundedCall& call);
void bound_softmax(ErrorBounds& bounds, const BoundedCall& call);
void bound_safe_softmax(ErrorBounds& bounds, const BoundedCall& call);
// How far off each term of a binary cross entropy is. Throws NoBound where the terms are weighted.
Tensor bound_cross_entropy_terms(const ErrorBounds& bounds, const BoundedCall& call);
void bound_logsumexp(ErrorBounds& bounds, const BoundedCall& call);
void bound_logcumsumexp(ErrorBounds& bounds, const BoundedCall& call);
void bound_log_softmax(ErrorBounds& bounds, const BoundedCall& call);
void bound_exp(ErrorBounds& bounds, const BoundedCall& call);
void bound_exp2(ErrorBounds& bounds, const BoundedCall& call);
void bound_expm1(ErrorBounds& bounds, const BoundedCall& call);
void bound_log(ErrorBounds& bounds, const BoundedCall& call);
void bound_log1p(ErrorBounds& bounds, const BoundedCall& call);
void bound_log2(ErrorBounds& bounds, const BoundedCall& call);

// Of what chooses by order, from the largest on or as an argument says, and from the least on; of
// spreads, without and with the mean; of products of a row's elements.
void bound_choice(ErrorBounds& bounds, const BoundedCall& call);
void bound_least_choice(ErrorBounds& bounds, const BoundedCall& call);
void bound_deviation(ErrorBounds& bounds, const BoundedCall& call);
void bound_variance(ErrorBounds& bounds, const BoundedCall& call);
void bound_deviation_and_mean(ErrorBounds& bounds, const BoundedCall& call);
void bound_variance_and_mean(ErrorBounds& bounds, const BoundedCall& call);
void bound_product_of_row(ErrorBounds& bounds, const BoundedCall& call);

// What no element of the result of a call with this rule is below without rounding; none: not
// known.
std::optional<double> find_floor(const ErrorBounds& bounds, const BoundedCall& call, BoundRule rule);

}  // namespace epweave::replay
