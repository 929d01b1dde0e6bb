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
    return bounds.apply("aten.slice.Tensor", {values, choice.dim, begin, end});
  };
  return bounds.apply(named::kSub, {part(0, ordered - 1), part(1, ordered)});
}

// What computing the spread of a row adds, relative to it; in float32, as the bounds are.
double spread_error(const BoundedCall& call) {
  const std::int64_t rows = std::max<std::int64_t>(only_result(call).numel(), 1);
  return sum_error(tensor_at(call, 0).numel() / rows + 4, DType::kFloat32);
}

// The sum of D^2 over n - c, where D is an element's distance from the mean: D^2 - d^2 is at most
// (2 |d| + E) E, where E bounds how far the distance is off, from what is computed here, too.
Tensor variance_bound(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = real_operand(call), &result = only_result(call);
  const std::size_t dim = *call.op.find_param("dim"), correction = *call.op.find_param("correction");
  const std::int64_t terms = x.numel() / std::max<std::int64_t>(result.numel(), 1);
  const double g = spread_error(call);
  const double left =
      static_cast<double>(terms) - (call.args[correction].is_none() ? 1.0 : call.args[correction].real());
  if (left <= 0) throw NoBound();
  const auto mean = [&](const Tensor& of) {
    return bounds.apply("aten.mean.dim", {of, call.args[dim], true});
  };
  const Tensor values = bounds.narrow(x), reach = widen(bounds, x, g);
  const Tensor distance = bounds.magnitude(bounds.apply(named::kSub, {values, mean(values)}));
  const Tensor off =
      bounds.add(bounds.add(bounds.find_or_zero(x), bounds.scale(bounds.magnitude(x), g)), mean(reach));
  const Tensor moved = bounds.multiply(bounds.add(bounds.scale(distance, 2), bounds.scale(off, 3)), off);
  const Value keep = call.args[*call.op.find_param("keepdim")];
  return bounds.scale(bounds.apply(named::kSum, {moved, call.args[dim], keep}), (1 + g) / left);
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
  const Tensor& result = only_result(call);
  const Tensor computed = bounds.scale(bounds.magnitude(result), spread_error(call));
  set_rounded(bounds, result, bounds.add(variance_bound(bounds, call), computed));
}

// |root(A) - root(a)| is at most |A - a| / root(A), and at most root(|A - a|).
void bound_deviation(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &result = only_result(call), size = bounds.magnitude(result);
  const Tensor of_square = variance_bound(bounds, call);
  const Tensor moved = bounds.apply("aten.fmin.default", {bounds.apply(named::kDiv, {of_square, size}),
                                                          bounds.apply(named::kSqrt, {of_square})});
  set_rounded(bounds, result, bounds.add(moved, bounds.scale(size, 2 * spread_error(call))));
}

}  // namespace epweave::replay
