// Bounds of what chooses elements of a row by their order, and of how far those of a row spread. X
// is what was computed, x what it is without rounding, B its bound: |X - x| <= B.
#include <algorithm>

#include "ops/op.h"
#include "replay/bounds/error_rules.h"

namespace epweave::replay {
namespace {

const Tensor& real_operand(const BoundedCall& call) {
  const Tensor& x = tensor_at(call, 0);
  if (call.op.writes || is_complex(x.dtype)) throw NoBound();
  return x;
}

// How many elements of a row are put in order, the first ones, and whether the largest come first.
struct Choice {
  std::int64_t dim = 0, count = 0;
  bool largest = true;
};

Choice choice_of(const BoundedCall& call, const Tensor& x, bool largest_first) {
  const auto find = [&](std::string_view name) {
    const auto param = call.op.find_param(name);
    return param ? call.args[*param] : Value();
  };
  const Value dim = find("dim"), count = find("k");
  if (dim.is_none()) throw NoBound();  // of all elements
  Choice choice{dim.integer(), 1, largest_first};
  if (!count.is_none()) choice.count = count.integer();
  if (call.op.family == OpFamily::kSort) choice.count = extent_along(x, dim);
  if (const Value largest = find("largest"); !largest.is_none()) choice.largest = largest.boolean();
  if (const Value descending = find("descending"); !descending.is_none())
    choice.largest = descending.boolean();
  return choice;
}

// The difference of each of the first `count` elements of a row and the next one in order, taken in
// their own type: float32 may show those of float64 further apart. A row of as many has one less.
Tensor steps_between(ErrorBounds& bounds, const Tensor& x, const Choice& choice, std::int64_t ordered) {
  const Value sorted =
      bounds.ops().run(*find_op("aten.topk.default"), {x, ordered, choice.dim, choice.largest, true});
  const Tensor& values = sorted.items().at(0).tensor();
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    return bounds.apply(named::kSlice, {values, choice.dim, begin, end});
  };
  return bounds.apply(named::kSub, {part(0, ordered - 1), part(1, ordered)});
}

// A call that gives how far the elements of a row spread, and perhaps their mean. Sums of it are
// made in float32, as the bounds are.
struct Spread {
  const Tensor& x;
  const Tensor& result;
  Value dims, keep;
  std::int64_t terms;
  double left;   // terms less the correction
  double error;  // what computing it adds, relative to it
};
const Tensor& spread_result(const BoundedCall& call) {
  return call.result.is<List>() ? call.result.items().at(0).tensor() : only_result(call);
}
Spread read_spread(const BoundedCall& call) {
  const Tensor &x = real_operand(call), &result = spread_result(call);
  const Value correction = call.args[*call.op.find_param("correction")];
  const std::int64_t terms = x.numel() / std::max<std::int64_t>(result.numel(), 1);
  const double left = static_cast<double>(terms) - (correction.is_none() ? 1.0 : correction.real());
  if (left <= 0) throw NoBound();
  return {x,     result, call.args[*call.op.find_param("dim")], call.args[*call.op.find_param("keepdim")],
          terms, left,   sum_error(terms + 4, DType::kFloat32)};
}

// The sum of D^2 over n - c, where D is an element's distance from the mean: D^2 - d^2 is at most
// (2 |d| + E) E, where E bounds how far the distance is off, from what is computed here, too.
// Squares below the least number of float32 are lost.
Tensor variance_bound(ErrorBounds& bounds, const Spread& spread) {
  constexpr double kLostSquare = 0x1p-148;
  const Tensor& x = spread.x;
  const auto mean = [&](const Tensor& of) { return bounds.apply(named::kMean, {of, spread.dims, true}); };
  const Tensor values = bounds.narrow(x), reach = widen(bounds, x, spread.error);
  const Tensor distance = bounds.magnitude(bounds.apply(named::kSub, {values, mean(values)}));
  const Tensor off = bounds.add(
      bounds.add(bounds.find_or_zero(x), bounds.scale(bounds.magnitude(x), spread.error)), mean(reach));
  const Tensor moved = bounds.multiply(bounds.add(bounds.scale(distance, 2), bounds.scale(off, 3)), off);
  const Tensor lost = bounds.apply(named::kAdd, {moved, kLostSquare});
  return bounds.scale(bounds.apply(named::kSum, {lost, spread.dims, spread.keep}),
                      (1 + spread.error) / spread.left);
}

void set_variance(ErrorBounds& bounds, const Spread& spread) {
  const Tensor computed = bounds.scale(bounds.magnitude(spread.result), spread.error);
  set_rounded(bounds, spread.result, bounds.add(variance_bound(bounds, spread), computed));
}

// |root(A) - root(a)| is at most |A - a| / root(A), and at most root(|A - a|). Root(A) is at least
// what is stored less its rounding.
void set_deviation(ErrorBounds& bounds, const Spread& spread) {
  const Tensor size = bounds.magnitude(spread.result);
  const Tensor least = bounds.apply(named::kSub, {size, bounds.round_off(spread.result)});
  const Tensor of_square = variance_bound(bounds, spread),
               otherwise = bounds.apply(named::kSqrt, {of_square});
  const Tensor moved = bounds.apply(
      named::kWhere,
      {bounds.apply(named::kGtNumber, {least, 0.0}),
       bounds.apply(named::kFmin, {bounds.apply(named::kDiv, {of_square, least}), otherwise}), otherwise});
  set_rounded(bounds, spread.result, bounds.add(moved, bounds.scale(size, 2 * spread.error)));
}

// Of (spread, mean).
void set_mean(ErrorBounds& bounds, const BoundedCall& call, const Spread& spread) {
  const Tensor& mean = call.result.items().at(1).tensor();
  set_rounded(bounds, mean,
              bounds.apply(named::kMean, {widen(bounds, spread.x, sum_error(spread.terms, mean.dtype)),
                                          spread.dims, spread.keep}));
}

// Which elements are the first ones of a row is the same in both graphs where each is further from
// the next one than both may be off. A value is no further off than the element of its row that is
// furthest.
void bound_order(ErrorBounds& bounds, const BoundedCall& call, bool largest_first) {
  const Tensor& x = real_operand(call);
  if (!is_floating(x.dtype)) {
    if (bounds.is_off(x)) throw NoBound();
    return;
  }
  if (x.numel() == 0) return;
  const Choice choice = choice_of(call, x, largest_first);
  const std::int64_t ordered = std::min(choice.count + 1, extent_along(x, choice.dim));
  const auto furthest = [&](bool keep) {
    return bounds.apply(named::kAmax, {bounds.find_or_zero(x), Value::list({choice.dim}), keep});
  };
  if (ordered > 1 && x.rank() > 0) {
    const Tensor wide = x.dtype == DType::kFloat64 ? x : bounds.narrow(x);
    const Tensor steps = bounds.magnitude(steps_between(bounds, wide, choice, ordered));
    const Tensor least = bounds.apply("aten.amin.default", {steps, Value::list({choice.dim}), true});
    const Tensor off = furthest(true);
    require_decided(bounds, bounds.apply(named::kGt, {least, bounds.scale(off, 2 * (1 + kBoundSlack))}), off);
  }
  const auto set_furthest = [&](const Value& result) {
    const Tensor& made = result.tensor();
    if (!is_floating(made.dtype)) return;
    bounds.set(made, bounds.add(bounds.zeros(made.sizes), furthest(made.rank() == x.rank())));
  };
  if (call.result.is_tensor()) return set_furthest(call.result);
  for (const Value& element : call.result.items()) set_furthest(element);
}

}  // namespace

void bound_choice(ErrorBounds& bounds, const BoundedCall& call) {
  bound_order(bounds, call, true);
}
void bound_least_choice(ErrorBounds& bounds, const BoundedCall& call) {
  bound_order(bounds, call, false);
}

void bound_variance(ErrorBounds& bounds, const BoundedCall& call) {
  set_variance(bounds, read_spread(call));
}
void bound_deviation(ErrorBounds& bounds, const BoundedCall& call) {
  set_deviation(bounds, read_spread(call));
}
void bound_variance_and_mean(ErrorBounds& bounds, const BoundedCall& call) {
  const Spread spread = read_spread(call);
  set_variance(bounds, spread);
  set_mean(bounds, call, spread);
}
void bound_deviation_and_mean(ErrorBounds& bounds, const BoundedCall& call) {
  const Spread spread = read_spread(call);
  set_deviation(bounds, spread);
  set_mean(bounds, call, spread);
}

// The products of |X| + B less those of |X|, and what each step rounds: of what is too small for
// its type so much as is left when the largest others are multiplied by it. In float64, as they may
// be large where what is multiplied in the end is small.
void bound_product_of_row(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = real_operand(call), &result = only_result(call);
  if (!is_floating(x.dtype) || !is_floating(result.dtype)) throw NoBound();
  const auto wide = [&](const Tensor& tensor) { return bounds.ops().cast(tensor, DType::kFloat64); };
  const auto product = [&](const Tensor& of) {
    std::vector<Value> args(call.args.begin(), call.args.end());
    args[0] = of;
    args[*call.op.find_param("dtype")] = DType::kFloat64;
    return bounds.ops().run(call.op, std::move(args)).tensor();
  };
  const Tensor size = bounds.apply(named::kAbs, {wide(x)}),
               reach = bounds.add(size, wide(bounds.find_or_zero(x)));
  const bool is_scan = call.op.family == OpFamily::kScan;
  const std::int64_t terms =
      is_scan ? extent_along(x, call.args[1]) : x.numel() / std::max<std::int64_t>(result.numel(), 1);
  const Tensor most = product(reach), at_least_1 = product(bounds.apply(named::kClampMin, {reach, 1.0}));
  const double lost = static_cast<double>(terms) * (result.dtype == DType::kFloat16 ? 0x1p-24 : 0x1p-148);
  const Tensor moved = bounds.apply(named::kSub, {most, product(size)});
  const Tensor rounded =
      bounds.add(bounds.scale(most, sum_error(4 * terms, result.dtype)), bounds.scale(at_least_1, lost));
  set_rounded(bounds, result, bounds.narrow(bounds.add(moved, rounded)));
}

}  // namespace epweave::replay
