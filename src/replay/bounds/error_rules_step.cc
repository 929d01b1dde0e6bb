// Bounds of what clips gradients and steps an optimizer. x is what an operand is without rounding,
// X what was computed, B its bound: |X - x| <= B.
#include <algorithm>
#include <cmath>
#include <limits>

#include "replay/bounds/error_rules.h"
#include "replay/kernels/math/sum_order.h"

namespace epweave::replay {
namespace {

constexpr double kMaximumNorm = std::numeric_limits<double>::infinity();
// Squares below the smallest normal number are lost: so much of the root of their sum, for each.
constexpr double kLostSquare = 0x1p-73;

Tensor subtract(const ErrorBounds& bounds, const Tensor& a, const Tensor& b) {
  return bounds.apply(named::kSub, {a, b});
}
Tensor root(const ErrorBounds& bounds, const Tensor& x) {
  return bounds.apply(named::kSqrt, {x});
}
// The one where the mask is true, elsewhere the other.
Tensor choose(const ErrorBounds& bounds, const Tensor& mask, const Tensor& yes, const Tensor& no) {
  return bounds.apply(named::kWhere, {mask, yes, no});
}

// For ops that read their operand behind what they write.
void require_unwritten(const BoundedCall& call) {
  if (call.op.writes) throw NoBound();
}

// |x1 / x2 - X1 / X2| where |X1 / X2| is `quotient`: (B1 + |X1 / X2| B2) / |x2|, and |x2| is at
// least |X2| - B2, or a known floor.
struct Divided {
  Tensor quotient, bound_1;
};
Tensor bound_quotient(const ErrorBounds& bounds, const Divided& of, const Tensor& divisor) {
  const Tensor bound_2 = bounds.find_or_zero(divisor);
  Tensor least = subtract(bounds, bounds.magnitude(divisor), bound_2);
  if (const auto floor = bounds.floor_of(divisor))
    least = bounds.apply(named::kMaximum, {least, bounds.ops().filled(DType::kFloat32, least.sizes, *floor)});
  const Tensor moved = bounds.add(of.bound_1, bounds.multiply(of.quotient, bound_2));
  const Tensor either = bounds.add(bounds.add(of.bound_1, bound_2), bounds.zeros(moved.sizes));
  const Tensor bound = choose(bounds, bounds.apply(named::kGtNumber, {least, 0.0}),
                              bounds.apply(named::kDiv, {moved, least}), bounds.unbounded(moved.sizes));
  // Of what is exact the quotient is, of zero, too.
  return choose(bounds, bounds.apply(named::kEqNumber, {either, 0.0}), bounds.zeros(bound.sizes), bound);
}

// B1 |X2| + B2 |X1| + B1 B2
Tensor bound_of_product(const ErrorBounds& bounds, const Tensor& a, const Tensor& b) {
  const Tensor bound_a = bounds.find_or_zero(a), bound_b = bounds.find_or_zero(b);
  return bounds.add(bounds.multiply(bound_a, bounds.add(bounds.magnitude(b), bound_b)),
                    bounds.multiply(bounds.magnitude(a), bound_b));
}

// |X^p - x^p| is at most |p| t^(p-1) B for a t between x and X. Where that may reach 0, roots are
// off by the root of B at most. Powers of what is below 0 are bounded for whole p, as those of |X|.
template <class Power>
Tensor bound_of_power(const ErrorBounds& bounds, const Tensor& x, double p, const Power& power) {
  const Tensor bound = bounds.find_or_zero(x);
  const bool is_whole = p == std::floor(p);
  const Tensor size = is_whole ? bounds.magnitude(x) : bounds.narrow(x);
  const Tensor most = bounds.add(size, bound);
  if (is_whole && p >= 1) return bounds.scale(bounds.multiply(power(most, p - 1), bound), p);
  Tensor least = subtract(bounds, size, bound);
  if (const auto floor = bounds.floor_of(x))
    least = bounds.apply(named::kMaximum, {least, bounds.ops().filled(DType::kFloat32, least.sizes, *floor)});
  const Tensor steepest = power(p >= 1 ? most : least, p - 1);
  Tensor otherwise = bounds.unbounded(size.sizes);
  if (p > 0 && p < 1)
    otherwise = choose(bounds, bounds.apply(named::kLtNumber, {size, 0.0}), otherwise, power(bound, p));
  const Tensor moved = choose(bounds, bounds.apply(named::kGtNumber, {least, 0.0}),
                              bounds.scale(bounds.multiply(steepest, bound), std::abs(p)), otherwise);
  return choose(bounds, bounds.apply(named::kEqNumber, {bound, 0.0}), bounds.zeros(size.sizes), moved);
}

// Of a power that is computed as several products, or by a library.
template <class Power>
void set_power(ErrorBounds& bounds, const BoundedCall& call, double p, const Power& power) {
  require_unwritten(call);
  const Tensor &x = tensor_at(call, 0), &result = only_result(call);
  if (!is_floating(x.dtype) || !is_floating(result.dtype)) throw NoBound();
  const Tensor rounded = bounds.scale(bounds.magnitude(result), sum_error(1, result.dtype));
  set_rounded(bounds, result, bounds.add(bound_of_power(bounds, x, p, power), rounded));
}

}  // namespace

void require_decided(const ErrorBounds& bounds, const Tensor& is_decided, const Tensor& bound) {
  const Tensor is_exact = bounds.apply(named::kEqNumber, {bound, 0.0});
  const Tensor is_known = bounds.apply(named::kLogicalOr, {is_decided, is_exact});
  if (bounds.ops().any(bounds.apply(named::kLogicalNot, {is_known}))) throw NoBound();
}

namespace {

bool is_one(const Tensor& a, const Tensor& b) {
  return a.storage == b.storage && a.offset == b.offset && a.sizes == b.sizes && a.strides == b.strides;
}

// In how many additions a term of a sum is at most: in the lanes, and where tiles are added up.
std::int64_t count_additions(std::int64_t terms) {
  constexpr std::int64_t kLevels = 4;  // at which the lanes are added up
  static_assert(math::kLanes == 1 << kLevels);
  if (terms > math::kSumTile)
    return count_additions(math::kSumTile) + count_additions(math::count_sum_tiles(terms));
  return (terms + math::kLanes - 1) / math::kLanes + kLevels;
}

}  // namespace

// A product of k factors that are each off by u is off by at most exp(k u) - 1 of what it gives,
// but for squares of u.
double norm_error(std::int64_t terms, DType dtype) {
  constexpr std::int64_t kOthers = 2;  // a square, a root
  const double u = unit_roundoff(dtype == DType::kFloat64 ? dtype : DType::kFloat32);
  return std::expm1(static_cast<double>(count_additions(terms) + kOthers) * u * (1 + kBoundSlack));
}

const Tensor& only_result(const BoundedCall& call) {
  if (!call.result.is_tensor()) throw NoBound();
  return call.result.tensor();
}

bool writes_argument(const BoundedCall& call, std::size_t param) {
  return call.result.is_tensor() && call.args[param].is_tensor() &&
         call.result.tensor().storage == call.args[param].tensor().storage;
}

Tensor magnitude_at(const ErrorBounds& bounds, const BoundedCall& call, std::size_t param) {
  const Tensor& x = tensor_at(call, param);
  if (!writes_argument(call, param)) return bounds.magnitude(x);
  if (is_complex(x.dtype) || !bounds.ideals().has_any(x)) throw NoBound();
  return bounds.add(bounds.magnitude(bounds.ideals().find(x)), bounds.find_or_zero(x));
}

// (B1 + |X1 / X2| B2) / |x2|; by an exact divisor B1 / |x2|.
void bound_div(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor bound = bounds.find_or_zero(tensor_at(call, 0));
  if (!call.args[1].is_tensor())
    return set_rounded_of(bounds, call, bounds.scale(bound, 1 / factor_at(call, 1)));
  const Tensor& divisor = call.args[1].tensor();
  if (is_complex(divisor.dtype) || writes_argument(call, 1)) throw NoBound();
  if (!bounds.find(divisor)) {
    const Tensor size = bounds.apply(named::kAbs, {bounds.narrow(divisor)});
    return set_rounded(bounds, only_result(call), bounds.apply(named::kDiv, {bound, size}));
  }
  const Tensor quotient =
      bounds.apply(named::kDiv, {magnitude_at(bounds, call, 0), bounds.magnitude(divisor)});
  set_rounded(bounds, only_result(call), bound_quotient(bounds, {quotient, bound}, divisor));
}

void bound_reciprocal(ErrorBounds& bounds, const BoundedCall& call) {
  require_unwritten(call);
  const Tensor& divisor = tensor_at(call, 0);
  if (is_complex(divisor.dtype)) throw NoBound();
  const Tensor zeros = bounds.zeros(divisor.sizes),
               quotient = bounds.apply(named::kReciprocal, {bounds.magnitude(divisor)});
  set_rounded(bounds, only_result(call), bound_quotient(bounds, {quotient, zeros}, divisor));
}

// |root(X) - root(x)| = |X - x| / (root(X) + root(x)), and at most the root of |X - x|. Of X below
// 0 nothing is known.
void bound_sqrt(ErrorBounds& bounds, const BoundedCall& call) {
  require_unwritten(call);
  if (is_complex(tensor_at(call, 0).dtype)) throw NoBound();
  const Tensor x = bounds.narrow(tensor_at(call, 0)), bound = bounds.find_or_zero(tensor_at(call, 0));
  const Tensor of_roots = choose(bounds, bounds.apply(named::kGt, {x, bound}),
                                 bounds.apply(named::kDiv, {bound, root(bounds, x)}), root(bounds, bound));
  const Tensor is_negative = bounds.apply(named::kLtNumber, {x, 0.0});
  set_rounded(bounds, only_result(call), choose(bounds, is_negative, bounds.unbounded(x.sizes), of_roots));
}

void bound_power(ErrorBounds& bounds, const BoundedCall& call) {
  set_power(bounds, call, number_at(call, 1), [&](const Tensor& base, double exponent) {
    return run_op(bounds, call.op, {base, exponent}).tensor();
  });
}
void bound_square(ErrorBounds& bounds, const BoundedCall& call) {
  set_power(bounds, call, 2, [](const Tensor& base, double) { return base; });
}
void bound_rsqrt(ErrorBounds& bounds, const BoundedCall& call) {
  set_power(bounds, call, -0.5, [&](const Tensor& base, double) {  // 1 / (base root(base))
    return bounds.apply(named::kReciprocal, {bounds.multiply(base, root(bounds, base))});
  });
}

// Of the largest and the smallest: no further than any element.
void bound_extreme(ErrorBounds& bounds, const BoundedCall& call) {
  std::vector<Value> args(call.args.begin(), call.args.end());
  args[0] = bounds.find_or_zero(tensor_at(call, 0));
  bounds.set(only_result(call), bounds.apply(named::kAmax, std::move(args)));
}

// Whether x is infinite or no number: both graphs say the same of what is finite and off by a
// finite bound.
void bound_is_finite(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor& x = tensor_at(call, 0);
  const Tensor bound = bounds.find_or_zero(x), reach = bounds.add(bounds.magnitude(x), bound);
  require_decided(bounds, bounds.apply(named::kLtNumber, {reach, kMaximumNorm}), bound);
}

// Both graphs say the same of operands that are further apart than they are off, and of a number
// and itself.
void bound_comparison(ErrorBounds& bounds, const BoundedCall& call) {
  require_unwritten(call);
  const Tensor& x = tensor_at(call, 0);
  if (call.args[1].is_tensor() && is_one(x, call.args[1].tensor())) return bound_is_finite(bounds, call);
  const auto wide = [&](const Tensor& tensor) {
    if (is_complex(tensor.dtype)) throw NoBound();
    return tensor.dtype == DType::kFloat64 ? tensor : bounds.narrow(tensor);
  };
  Tensor off = bounds.find_or_zero(x), reach = widen(bounds, x, kBoundSlack), distance;
  if (call.args[1].is_tensor()) {
    const Tensor& y = call.args[1].tensor();
    off = bounds.add(off, bounds.find_or_zero(y));
    reach = bounds.add(reach, bounds.scale(bounds.find_or_zero(y), 1 + kBoundSlack));
    distance = subtract(bounds, wide(x), wide(y));
  } else {
    distance = bounds.apply(named::kAdd, {wide(x), -number_at(call, 1)});
  }
  require_decided(bounds, bounds.apply(named::kGt, {bounds.magnitude(distance), reach}), off);
}

// Between numbers: no two elements come further apart. Of two tensors: no further than either's.
void bound_clamp(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor& result = only_result(call);
  for (const Value& arg : call.args)
    if (arg.is_tensor() && arg.tensor().dtype != result.dtype) throw NoBound();
  Tensor bound = bounds.find_or_zero(tensor_at(call, 0));
  for (const Value& limit : call.args.subspan(1))
    if (limit.is_tensor())
      bound = bounds.apply(named::kMaximum, {bound, bounds.find_or_zero(limit.tensor())});
  bounds.set(result, bounds.add(bounds.zeros(result.sizes), bound));
}

// | |X| - |x| | <= |X - x| <= |B|, of norms of the order 1, 2 and infinity.
void bound_vector_norm(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = tensor_at(call, 0), &result = only_result(call);
  const double order = number_at(call, 1);
  if (order != 1 && order != 2 && order != kMaximumNorm) throw NoBound();
  if (is_complex(x.dtype) || unit_roundoff(result.dtype) > unit_roundoff(x.dtype)) throw NoBound();
  std::vector<Value> args(call.args.begin(), call.args.end());
  args[0] = bounds.find_or_zero(x);
  args[4] = Value();
  const double terms =
      static_cast<double>(x.numel()) / static_cast<double>(std::max<std::int64_t>(result.numel(), 1));
  const double g = norm_error(static_cast<std::int64_t>(terms), result.dtype);
  const Tensor bound = bounds.add(bounds.scale(run_op(bounds, call.op, std::move(args)).tensor(), 1 + g),
                                  bounds.scale(bounds.magnitude(result), g));
  const double lost = order == 2 ? kLostSquare * std::sqrt(terms) : 0;
  set_rounded(bounds, result, bounds.apply(named::kAdd, {bound, lost}));
}

// (1 - w) x1 + w x2, of which x1 + w (x2 - x1) and x2 - (x2 - x1) (1 - w) are computed.
void bound_lerp(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor& end = tensor_at(call, 1);
  const double w = factor_at(call, 2), rest = std::abs(1 - number_at(call, 2));
  const Tensor sizes = bounds.add(magnitude_at(bounds, call, 0), magnitude_at(bounds, call, 1));
  const Tensor bound = bounds.add(bounds.scale(bounds.find_or_zero(tensor_at(call, 0)), rest),
                                  bounds.scale(bounds.find_or_zero(end), w));
  set_rounded(bounds, only_result(call),
              bounds.add(bound, bounds.scale(sizes, (w + rest) * sum_error(2, end.dtype))));
}

// x + value x1 x2
void bound_addcmul(ErrorBounds& bounds, const BoundedCall& call) {
  if (writes_argument(call, 1) || writes_argument(call, 2)) throw NoBound();
  const Tensor &a = tensor_at(call, 1), &b = tensor_at(call, 2);
  const double value = factor_at(call, 3);
  const Tensor product = bounds.multiply(bounds.magnitude(a), bounds.magnitude(b));
  const Tensor bound = bounds.add(bound_of_product(bounds, a, b),
                                  bounds.scale(product, sum_error(2, only_result(call).dtype)));
  set_rounded(bounds, only_result(call),
              bounds.add(bounds.find_or_zero(tensor_at(call, 0)), bounds.scale(bound, value)));
}

// x + value x1 / x2
void bound_addcdiv(ErrorBounds& bounds, const BoundedCall& call) {
  if (writes_argument(call, 1) || writes_argument(call, 2)) throw NoBound();
  const Tensor &a = tensor_at(call, 1), &b = tensor_at(call, 2);
  const double value = factor_at(call, 3);
  if (is_complex(a.dtype) || is_complex(b.dtype)) throw NoBound();
  const Tensor quotient = bounds.apply(named::kDiv, {bounds.magnitude(a), bounds.magnitude(b)});
  const Tensor bound = bounds.add(bound_quotient(bounds, {quotient, bounds.find_or_zero(a)}, b),
                                  bounds.scale(quotient, sum_error(2, only_result(call).dtype)));
  set_rounded(bounds, only_result(call),
              bounds.add(bounds.find_or_zero(tensor_at(call, 0)), bounds.scale(bound, value)));
}

}  // namespace epweave::replay
