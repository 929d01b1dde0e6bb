// The bound of each op: see error_bounds.h. n terms added one after the other in a type of unit
// roundoff u are off by at most n u / (1 - n u) times the sum of their magnitudes (Higham, Accuracy
// and Stability of Numerical Algorithms, 4.2); any order of adding is.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "ops/family.h"
#include "ops/number_ops.h"
#include "replay/bounds/error_rules.h"

namespace epweave::replay {

double sum_error(std::int64_t terms, DType dtype) {
  const double u = dtype == DType::kFloat64 ? unit_roundoff(dtype) : unit_roundoff(DType::kFloat32);
  const double nu = static_cast<double>(terms + 2) * u;
  if (nu > 0.25) throw NoBound();
  return nu / (1 - 2 * nu);
}

const Tensor& tensor_at(const BoundedCall& call, std::size_t param) {
  if (param >= call.args.size() || !call.args[param].is_tensor()) throw NoBound();
  return call.args[param].tensor();
}

void set_rounded(ErrorBounds& bounds, const Tensor& result, const Tensor& bound) {
  const bool rounds = is_inexact(result.dtype);
  bounds.set(result, rounds ? bounds.add(bound, bounds.round_off(result)) : bound);
}

void set_rounded_of(ErrorBounds& bounds, const BoundedCall& call, const Tensor& bound) {
  const Tensor& result = only_result(call);
  if (!is_floating(result.dtype)) return set_rounded(bounds, result, bound);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto is_infinite = [&](const Tensor& x) {
    return bounds.apply(named::kEqNumber, {bounds.magnitude(x), kInfinity});
  };
  const Tensor of_result = is_infinite(result);
  if (!bounds.ops().any(of_result)) return set_rounded(bounds, result, bound);
  const Tensor exact = bounds.zeros(result.sizes),
               is_known = bounds.apply(named::kLogicalAnd,
                                       {of_result, bounds.apply(named::kLtNumber, {bound, kInfinity})});
  Tensor rounded = bounds.add(bound, bounds.round_off(result));
  for (std::size_t i = 0; i < call.args.size(); ++i) {
    const Value& arg = call.args[i];
    const bool is_number = arg.is_number() && std::isinf(arg.real());
    if (!is_number && (!arg.is_tensor() || writes_argument(call, i))) continue;
    const Tensor is_given =
        is_number ? is_known : bounds.apply(named::kLogicalAnd, {is_known, is_infinite(arg.tensor())});
    rounded = bounds.apply(named::kWhere, {is_given, exact, rounded});
  }
  bounds.set(result, rounded);
}

Value run_op(ErrorBounds& bounds, const OpInfo& op, std::vector<Value> args) {
  // Bounds are float32: a float64 argument beside them would make a result of its own type.
  for (Value& arg : args)
    if (arg.is_tensor() && arg.tensor().dtype == DType::kFloat64) arg = bounds.narrow(arg.tensor());
  if (!bounds.ops().has(op)) throw NoBound();
  return bounds.ops().run(op, std::move(args));
}

double number_at(const BoundedCall& call, std::size_t param) {
  if (param >= call.args.size() || !call.args[param].is_number()) throw NoBound();
  return call.args[param].real();
}

double factor_at(const BoundedCall& call, std::size_t param) {
  return std::abs(number_at(call, param));
}

Tensor widen(const ErrorBounds& bounds, const Tensor& x, double error) {
  return bounds.add(bounds.scale(bounds.magnitude(x), error),
                    bounds.scale(bounds.find_or_zero(x), 1 + error));
}

namespace {

// --- pointwise ---

// self + alpha * other
void bound_add(ErrorBounds& bounds, const BoundedCall& call) {
  Tensor bound = bounds.find_or_zero(tensor_at(call, 0));
  if (call.args[1].is_tensor())
    bound = bounds.add(bound, bounds.scale(bounds.find_or_zero(call.args[1].tensor()), factor_at(call, 2)));
  set_rounded_of(bounds, call, bound);
}

// other - alpha * self
void bound_subtracted(ErrorBounds& bounds, const BoundedCall& call) {
  Tensor bound = bounds.scale(bounds.find_or_zero(tensor_at(call, 0)), factor_at(call, 2));
  if (call.args[1].is_tensor()) bound = bounds.add(bound, bounds.find_or_zero(call.args[1].tensor()));
  set_rounded_of(bounds, call, bound);
}

void bound_neg(ErrorBounds& bounds, const BoundedCall& call) {
  bounds.set(only_result(call), bounds.find_or_zero(tensor_at(call, 0)));
}

void bound_abs(ErrorBounds& bounds, const BoundedCall& call) {
  if (is_complex(tensor_at(call, 0).dtype)) throw NoBound();
  bound_neg(bounds, call);
}

void bound_conj(ErrorBounds& bounds, const BoundedCall& call) {
  bound_neg(bounds, call);
}

// |b| bound(a) + |a| bound(b) + bound(a) bound(b)
void bound_mul(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor& a = tensor_at(call, 0);
  if (!call.args[1].is_tensor())
    return set_rounded_of(bounds, call, bounds.scale(bounds.find_or_zero(a), factor_at(call, 1)));
  const Tensor& b = call.args[1].tensor();
  const Tensor bound_a = bounds.find_or_zero(a);
  const Tensor size_b = magnitude_at(bounds, call, 1);
  Tensor bound = bounds.multiply(bound_a, size_b);
  if (bounds.find(b)) {
    const Tensor reach = bounds.add(magnitude_at(bounds, call, 0), bound_a);
    bound = bounds.add(bound, bounds.multiply(reach, bounds.find_or_zero(b)));
  }
  if (is_complex(only_result(call).dtype)) {  // two products, and their sum may be smaller than they are
    const Tensor product = bounds.multiply(magnitude_at(bounds, call, 0), size_b);
    bound = bounds.add(bound, bounds.scale(product, sum_error(2, a.dtype)));
  }
  set_rounded_of(bounds, call, bound);
}

// Of real and imaginary parts.
void bound_complex(ErrorBounds& bounds, const BoundedCall& call) {
  bounds.set(only_result(call), bounds.apply(named::kMaximum, {bounds.find_or_zero(tensor_at(call, 0)),
                                                               bounds.find_or_zero(tensor_at(call, 1))}));
}

// Of a length and an angle: no part moves further than the length does, and the angle turns it.
void bound_polar(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &length = tensor_at(call, 0), &angle = tensor_at(call, 1), &result = only_result(call);
  const Tensor bound = bounds.find_or_zero(length), size = bounds.magnitude(length);
  const Tensor turned = bounds.multiply(bounds.add(size, bound), bounds.find_or_zero(angle));
  const Tensor computed = bounds.scale(size, sum_error(6, length.dtype));
  set_rounded(bounds, result, bounds.add(bounds.add(bound, turned), computed));
}

// --- copies ---

// Whether some number of the one type is none of the other. float16 has more digits than bfloat16,
// but fewer the nearer a number is to 0.
bool is_rounded(DType from, DType to) {
  return unit_roundoff(to) > unit_roundoff(from) || (to == DType::kFloat16 && from == DType::kBfloat16);
}

// Writes of `source` over `self`: the bound moves, and grows where the stored type is narrower.
void bound_copy_in_place(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &to = only_result(call), &from = tensor_at(call, 1);
  const Tensor bound = bounds.add(bounds.zeros(to.sizes), bounds.find_or_zero(from));
  if (is_rounded(from.dtype, to.dtype)) return set_rounded_of(bounds, call, bound);
  bounds.set(to, bound);
}

// What has to be the same bits in both graphs: an index that may be another one says nothing of
// which elements it takes.
void require_exact(const ErrorBounds& bounds, const Tensor& tensor) {
  const auto bound = bounds.find(tensor);
  if (bound && bounds.ops().any(*bound)) throw NoBound();
}

// Integers, which have no bounds but where nothing is known of them, may be added up in parts, too.
void bound_cast(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &to = only_result(call), &from = tensor_at(call, 0);
  if (!is_floating(to.dtype) || is_complex(from.dtype)) throw NoBound();
  if (!is_floating(from.dtype)) require_exact(bounds, from);
  const Tensor bound = bounds.find_or_zero(from);
  if (is_rounded(from.dtype, to.dtype)) return set_rounded_of(bounds, call, bound);
  bounds.set(to, bound);
}

// Of the argument only the shape counts: exact.
void bound_new(ErrorBounds&, const BoundedCall&) {}

void bound_overwrite(ErrorBounds& bounds, const BoundedCall& call) {
  bounds.set(only_result(call), bounds.zeros(only_result(call).sizes));
}

// (input, p, train) -> (output, which are kept). Which are is drawn, whatever the input is, and the
// output is the input times that and 1 / (1 - p), 0 where nothing is kept.
void bound_dropout(ErrorBounds& bounds, const BoundedCall& call) {
  const bool drops = call.args[2].is_none() || call.args[2].boolean();
  const double chance = drops ? 1 - number_at(call, 1) : 1;
  const Value &output = call.result.items().at(0), &kept = call.result.items().at(1);
  const std::vector<Value> args = {call.args[0], kept, chance == 0 ? 0.0 : 1 / chance};
  bounds.follow({*find_op(named::kDropoutBackward), args, output});
}

// The same numbers about a mean that may be another one. What they are without rounding is not
// known: it is no longer apart from the mean.
void bound_drawn_about_mean(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor& result = only_result(call);
  set_rounded(bounds, result, bounds.find_or_zero(tensor_at(call, 0)));
  bounds.ideals().set_unknown(result);
}

// What is drawn is the same in both graphs, which draw in the same order, where all that is read
// is. What is written over is not read.
void bound_draw(ErrorBounds& bounds, const BoundedCall& call) {
  if (call.op.target == named::kDropout) return bound_dropout(bounds, call);
  if (call.op.target == "aten.normal.Tensor_float" && bounds.is_off(call.args[0]))
    return bound_drawn_about_mean(bounds, call);
  if (call.op.reads_types_only) return;
  for (std::size_t i = 0; i < call.args.size(); ++i)
    if (call.args[i].is_tensor() && !call.op.params[i].is_written)
      require_exact(bounds, call.args[i].tensor());
  if (call.op.writes) bound_overwrite(bounds, call);
}

// An argument with each floating tensor replaced by replace(tensor), and floating types by float32.
// Integers stay as they are; throws NoBound where one of them may be another number.
template <class Replace>
Value replace_tensors(const ErrorBounds& bounds, const Value& value, const Replace& replace) {
  if (value.is_tensor()) {
    const DType dtype = value.tensor().dtype;
    if (is_inexact(dtype)) return replace(value.tensor());
    require_exact(bounds, value.tensor());
    return value;
  }
  if (value.is<DType>() && is_floating(value.as<DType>())) return DType::kFloat32;
  if (!value.is<List>()) return value;
  List list{value.as<List>().is_tuple, {}};
  for (const Value& item : value.items()) list.items.push_back(replace_tensors(bounds, item, replace));
  return list;
}

template <class Replace>
std::vector<Value> replace_all(const ErrorBounds& bounds, const BoundedCall& call, const Replace& replace) {
  std::vector<Value> args;
  for (const Value& arg : call.args) args.push_back(replace_tensors(bounds, arg, replace));
  return args;
}

void set_each(ErrorBounds& bounds, const Value& result, const Value& bound) {
  if (result.is_tensor()) return bounds.set(result.tensor(), bound.tensor());
  for (std::size_t i = 0; i < result.items().size(); ++i)
    set_each(bounds, result.items()[i], bound.items().at(i));
}

// Whether a tensor in the argument, or in a list of them, has another dtype.
bool has_other_dtype(const Value& value, DType dtype) {
  if (value.is_tensor()) return value.tensor().dtype != dtype;
  return value.is<List>() &&
         std::ranges::any_of(value.items(), [&](const Value& item) { return has_other_dtype(item, dtype); });
}

// Of joins and writes of a slice all operands are copied. One of another dtype is stored otherwise.
void require_one_dtype(const BoundedCall& call) {
  const OpFamily family = call.op.family;
  if (family != OpFamily::kJoin && family != OpFamily::kStack && family != OpFamily::kSliceWrite) return;
  const DType dtype = only_result(call).dtype;
  if (std::ranges::any_of(call.args, [&](const Value& arg) { return has_other_dtype(arg, dtype); }))
    throw NoBound();
}

// Whether the result is of integers: exact where all operands are. Of others nothing is known.
bool are_exact_integers(const ErrorBounds& bounds, const BoundedCall& call) {
  if (!call.result.is_tensor() || is_inexact(call.result.tensor().dtype)) return false;
  for (const Value& arg : call.args)
    if (bounds.is_off(arg)) throw NoBound();
  return true;
}

// Elements are copied: so are their bounds. What is overwritten has its old bounds until here; a
// number that is filled in is exact, whichever it is.
void bound_movement(ErrorBounds& bounds, const BoundedCall& call) {
  if (call.op.writes && !writes_argument(call, 0)) throw NoBound();
  if (are_exact_integers(bounds, call)) return;
  require_one_dtype(call);
  const auto bound = [&](const Tensor& tensor) { return bounds.find_or_zero(tensor); };
  std::vector<Value> args = replace_all(bounds, call, bound);
  for (std::size_t i = 0; i < args.size(); ++i)
    if (call.op.params[i].type == "Scalar") args[i] = 0.0;
  set_each(bounds, call.result, run_op(bounds, call.op, std::move(args)));
}

// --- selection ---

// Of an operand's elements, stored as `to`; a number is exact.
Value bound_stored(ErrorBounds& bounds, const Value& operand, DType to) {
  if (!operand.is_tensor()) return 0.0;
  const Tensor& from = operand.tensor();
  const Tensor bound = bounds.find_or_zero(from);
  if (!bounds.find(from) || !is_rounded(from.dtype, to)) return bound;
  return bounds.add(bound, bounds.round_off(bounds.apply(named::kCast, {from, to})));
}

// The bound of the element that is selected; which one that is has to be the same in both graphs.
void bound_selected(ErrorBounds& bounds, const BoundedCall& call, const Tensor& condition, const Value& yes,
                    const Value& no) {
  require_exact(bounds, condition);
  const Tensor& result = only_result(call);
  bounds.set(result, bounds.apply(named::kWhere, {condition, bound_stored(bounds, yes, result.dtype),
                                                  bound_stored(bounds, no, result.dtype)}));
}

void bound_where(ErrorBounds& bounds, const BoundedCall& call) {
  bound_selected(bounds, call, tensor_at(call, 0), call.args[1], call.args[2]);
}

// (self, mask, value)
void bound_masked_fill(ErrorBounds& bounds, const BoundedCall& call) {
  bound_selected(bounds, call, tensor_at(call, 1), call.args[2], tensor_at(call, 0));
}

// --- sums ---

// A multiple of the first operand, by what the others say.
void bound_multiple(ErrorBounds& bounds, const BoundedCall& call) {
  const Value& result = call.result;
  if (!result.is_tensor() || !is_floating(result.tensor().dtype)) throw NoBound();
  bound_activation_backward(bounds, call);
}

// A loss's `reduction`.
constexpr std::int64_t kNoReduction = 0, kTotal = 2;

// Sums of `terms` elements each: the op on gamma |x| + bound(x). What is added to in place is read
// by what it was; the others must lie elsewhere.
void bound_sum(ErrorBounds& bounds, const BoundedCall& call, std::int64_t terms) {
  if (call.op.writes) {
    if (!writes_argument(call, 0)) throw NoBound();
    for (std::size_t i = 1; i < call.args.size(); ++i)
      if (writes_argument(call, i)) throw NoBound();
  }
  if (are_exact_integers(bounds, call)) return;
  const Tensor& result = only_result(call);
  const double g = sum_error(terms, result.dtype);
  const auto reach = [&](const Tensor& tensor) { return widen(bounds, tensor, g); };
  std::vector<Value> args = replace_all(bounds, call, reach);
  if (!is_inexact(tensor_at(call, 0).dtype)) args[0] = reach(tensor_at(call, 0));  // of exact integers
  if (call.op.writes)
    args[0] = bounds.add(bounds.scale(magnitude_at(bounds, call, 0), g), bounds.find_or_zero(result));
  set_rounded(bounds, result, run_op(bounds, call.op, std::move(args)).tensor());
}

void bound_reduction(ErrorBounds& bounds, const BoundedCall& call) {
  const std::int64_t results = std::max<std::int64_t>(only_result(call).numel(), 1);
  bound_sum(bounds, call, tensor_at(call, 0).numel() / results);
}

// What is no number is left out: where it is exact, in both graphs.
void bound_nansum(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &x = tensor_at(call, 0), &result = only_result(call);
  const std::int64_t terms = x.numel() / std::max<std::int64_t>(result.numel(), 1);
  const double g = sum_error(terms, result.dtype);
  const Tensor bound = bounds.find_or_zero(x);
  const Tensor is_left_out = bounds.apply(
      named::kLogicalAnd,
      {bounds.apply(named::kIsnan, {bounds.narrow(x)}), bounds.apply(named::kEqNumber, {bound, 0.0})});
  std::vector<Value> args(call.args.begin(), call.args.end());
  args[0] = bounds.apply(named::kWhere, {is_left_out, bounds.zeros(x.sizes), widen(bounds, x, g)});
  args[3] = Value();
  set_rounded(bounds, result, bounds.apply(named::kSum, std::move(args)));
}

// Whole numbers, which the result's type has up to 2^digits: exact where the elements are.
void bound_histogram(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor& x = tensor_at(call, 0);
  if (bounds.is_off(x) || static_cast<double>(x.numel()) * unit_roundoff(only_result(call).dtype) > 0.5)
    throw NoBound();
}

void bound_scan(ErrorBounds& bounds, const BoundedCall& call) {
  bound_sum(bounds, call, extent_along(tensor_at(call, 0), call.args[1]));
}

// Rows added where an index says: at most all of them in one place.
void bound_scatter_add(ErrorBounds& bounds, const BoundedCall& call) {
  bound_sum(bounds, call, extent_along(tensor_at(call, 2), call.args[1]) + 1);
}
// Sums as they are; the largest and the smallest are no further off than any element. Of others
// nothing is known.
void bound_scatter_reduce(ErrorBounds& bounds, const BoundedCall& call) {
  const std::string& how = call.args[4].as<Text>().text;
  if (how == "sum") return bound_sum(bounds, call, extent_along(tensor_at(call, 3), call.args[1]) + 1);
  if (call.op.writes || (how != "amax" && how != "amin")) throw NoBound();
  if (are_exact_integers(bounds, call)) return;
  std::vector<Value> args =
      replace_all(bounds, call, [&](const Tensor& x) { return bounds.find_or_zero(x); });
  args[4] = Text{ArgKind::kText, "amax"};
  bounds.set(only_result(call), run_op(bounds, call.op, std::move(args)).tensor());
}
// self + alpha * source, whose sign says nothing of its error. The index is a row, whatever the
// dimension.
void bound_index_add(ErrorBounds& bounds, const BoundedCall& call) {
  std::vector<Value> args(call.args.begin(), call.args.end());
  args.at(4) = factor_at(call, 4);
  bound_sum(bounds, {call.op, args, call.result}, tensor_at(call, 2).numel() + 1);
}
void bound_row_scatter_add(ErrorBounds& bounds, const BoundedCall& call) {
  bound_sum(bounds, call, tensor_at(call, 1).size(0) + 1);
}
void bound_embedding_backward(ErrorBounds& bounds, const BoundedCall& call) {
  bound_sum(bounds, call, tensor_at(call, 1).numel());
}

void bound_index_put(ErrorBounds& bounds, const BoundedCall& call) {
  if (!call.args[3].boolean()) return bound_movement(bounds, call);
  std::int64_t rows = 1;
  for (const Value& index : call.args[1].items())
    if (index.is_tensor()) rows = std::max(rows, index.tensor().numel());
  bound_sum(bounds, call, rows + 1);
}

// --- products ---

// gamma |a| |b| + bound(a) |b| + (|a| + bound(a)) bound(b); `a` and `b` are the parameters.
void bound_product(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &a = tensor_at(call, 0), &b = tensor_at(call, 1);
  const Tensor& result = only_result(call);
  const auto product = [&](const Tensor& x, const Tensor& y) {
    std::vector<Value> args = replace_all(bounds, call, [](const Tensor& tensor) { return tensor; });
    args[0] = x;
    args[1] = y;
    return run_op(bounds, call.op, std::move(args)).tensor();
  };
  const Tensor abs_a = bounds.magnitude(a), abs_b = bounds.magnitude(b);
  // Of narrower operands it is added up as they are, whatever it is stored as.
  Tensor bound = bounds.scale(product(abs_a, abs_b), sum_error(a.sizes.back(), a.dtype));
  const auto bound_a = bounds.find(a), bound_b = bounds.find(b);
  if (bound_a) bound = bounds.add(bound, product(bounds.find_or_zero(a), abs_b));
  if (bound_b) {
    const Tensor reach = bound_a ? bounds.add(abs_a, bounds.find_or_zero(a)) : abs_a;
    bound = bounds.add(bound, product(reach, bounds.find_or_zero(b)));
  }
  set_rounded(bounds, result, bound);
}

// beta c + alpha a b: the op on gamma (|c|, |a|, |b|), on the bounds of c and a, and on that of b.
void bound_added_product(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &c = tensor_at(call, 0), &a = tensor_at(call, 1), &b = tensor_at(call, 2);
  const double beta = factor_at(call, 3), alpha = factor_at(call, 4);
  const auto run = [&](const Tensor& x, const Tensor& y, const Tensor& z) {
    return run_op(bounds, call.op, {x, y, z, beta, alpha}).tensor();
  };
  const Tensor abs_a = bounds.magnitude(a), abs_b = bounds.magnitude(b);
  const double g = sum_error(a.sizes.back() + 1, a.dtype);
  Tensor bound = bounds.scale(run(bounds.magnitude(c), abs_a, abs_b), g);
  if (bounds.find(c) || bounds.find(a))
    bound = bounds.add(bound, run(bounds.find_or_zero(c), bounds.find_or_zero(a), abs_b));
  if (bounds.find(b)) {
    const Tensor reach = bounds.add(abs_a, bounds.find_or_zero(a));
    bound = bounds.add(bound, run(bounds.zeros(c.sizes), reach, bounds.find_or_zero(b)));
  }
  set_rounded(bounds, only_result(call), bound);
}

// Of (grad, input, weight, ..), with input and weight exact: sums of the gradient's products with
// the weight, with the input, and of the gradient itself.
void bound_convolution_backward(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &grad = tensor_at(call, 0), &input = tensor_at(call, 1), &weight = tensor_at(call, 2);
  if (bounds.find(input) || bounds.find(weight)) throw NoBound();
  const std::int64_t windows = std::max(grad.numel() / std::max<std::int64_t>(grad.sizes[1], 1),
                                        input.numel() / std::max<std::int64_t>(input.sizes[1], 1));
  const double g = sum_error(std::max(windows, weight.numel()), grad.dtype);
  std::vector<Value> args =
      replace_all(bounds, call, [&](const Tensor& tensor) { return bounds.magnitude(tensor); });
  args.at(0) = widen(bounds, grad, g);
  const Value bound = run_op(bounds, call.op, std::move(args));
  for (std::size_t i = 0; i < call.result.items().size(); ++i)
    if (const Value& result = call.result.items()[i]; result.is_tensor())
      set_rounded(bounds, result.tensor(), bound.items().at(i).tensor());
}

// How far off each term of a loss is whose operands are.
using TermBound = Tensor (*)(const ErrorBounds&, const BoundedCall&);

Tensor find_bound_of_operands(const ErrorBounds& bounds, const BoundedCall& call) {
  return bounds.add(bounds.find_or_zero(tensor_at(call, 0)), bounds.find_or_zero(tensor_at(call, 1)));
}
Tensor bound_squares(const ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor x = bounds.narrow(tensor_at(call, 0)), t = bounds.narrow(tensor_at(call, 1));
  const Tensor twice =
      bounds.scale(bounds.magnitude(bounds.apply(named::kSub, {x, t})), 2 * (1 + kBoundSlack));
  const Tensor off = find_bound_of_operands(bounds, call);
  return bounds.multiply(off, bounds.add(twice, off));
}
// Nowhere steeper than delta.
Tensor bound_huber_terms(const ErrorBounds& bounds, const BoundedCall& call) {
  return bounds.scale(find_bound_of_operands(bounds, call), factor_at(call, 3));
}
Tensor bound_no_terms(const ErrorBounds&, const BoundedCall&) {
  throw NoBound();
}

// Terms, added up or averaged. Of a row's class also the weights of all rows, of exact operands.
template <TermBound bound_terms>
void bound_loss(ErrorBounds& bounds, const BoundedCall& call) {
  const bool is_class = call.op.family == OpFamily::kClassLoss;
  const std::size_t reduction = *call.op.find_param("reduction");
  const std::int64_t kind = call.args[reduction].integer();
  const bool is_exact = std::ranges::none_of(
      call.args, [&](const Value& arg) { return arg.is_tensor() && bounds.is_off(arg.tensor()); });
  if (is_exact && kind == kNoReduction) throw NoBound();  // exact: who asks has another reason to
  if (is_class && (!is_exact || kind != kTotal || !call.args[2].is_none())) throw NoBound();
  std::vector<Value> args(call.args.begin(), call.args.end());
  args[reduction] = kNoReduction;
  const Value made = run_op(bounds, call.op, std::move(args));
  const Tensor terms = bounds.magnitude((is_class ? made.items().at(0) : made).tensor());
  const Tensor& result = (is_class ? call.result.items().at(0) : call.result).tensor();
  // Of exact operands each term is the same in both graphs; of others it is rounded, too.
  constexpr std::int64_t kRoundingsOfTerm = 8;
  const double g =
      sum_error((kind == kNoReduction ? 1 : terms.numel()) + (is_exact ? 0 : kRoundingsOfTerm), result.dtype);
  Tensor bound = bounds.scale(terms, g);
  if (!is_exact) bound = bounds.add(bound, bound_terms(bounds, call));
  if (kind != kNoReduction) {
    const double scale =
        kind == kTotal ? 1.0 : 1.0 / static_cast<double>(std::max<std::int64_t>(terms.numel(), 1));
    bound = bounds.scale(bounds.apply(named::kSumOfAll, {bound}), scale);
  }
  set_rounded(bounds, result, bound);
  if (!is_class) return;
  const Tensor& weights = call.result.items().at(1).tensor();
  set_rounded(bounds, weights, bounds.scale(bounds.magnitude(weights), g));
}

// Of an op that writes its first operand, the rule of the one that does not.
struct RuleRow {
  std::string_view target;
  BoundRule rule;
};

constexpr RuleRow kRules[] = {
    {"aten._conj.default", bound_conj},
    {"aten._fused_rms_norm_backward.default", bound_rms_norm_backward},
    {"aten._log_softmax.default", bound_log_softmax},
    {"aten._log_softmax_backward_data.default", bound_log_softmax_backward},
    {"aten._safe_softmax.default", bound_safe_softmax},
    {"aten._softmax.default", bound_softmax},
    {"aten._softmax_backward_data.default", bound_softmax_backward},
    {named::kAbs, bound_abs},
    {"aten.addcdiv.default", bound_addcdiv},
    {"aten.addcmul.default", bound_addcmul},
    {"aten.add.Scalar", bound_add},
    {named::kAdd, bound_add},
    {named::kAmax, bound_extreme},
    {"aten.amin.default", bound_extreme},
    {named::kArgmax, bound_choice},
    {"aten.argmin.default", bound_least_choice},
    {"aten.atan.default", bound_flat},
    {"aten.binary_cross_entropy.default", bound_loss<bound_cross_entropy_terms>},
    {"aten.binary_cross_entropy_with_logits.default", bound_loss<bound_no_terms>},
    {"aten.clamp.Tensor", bound_clamp},
    {"aten.clamp.default", bound_clamp},
    {"aten.clamp_max.default", bound_clamp},
    {named::kClampMin, bound_clamp},
    {named::kComplex, bound_complex},
    {"aten.copy.default", bound_copy_in_place},
    {named::kCos, bound_flat},
    {"aten.cosh.default", bound_hyperbolic},
    {"aten.div.Scalar", bound_div},
    {named::kDiv, bound_div},
    {"aten.cumprod.default", bound_product_of_row},
    {named::kEqNumber, bound_comparison},
    {named::kEq, bound_comparison},
    {"aten.elu.default", bound_elu},
    {"aten.erf.default", bound_nearly_flat},
    {named::kExp, bound_exp},
    {"aten.exp2.default", bound_exp2},
    {named::kExpm1, bound_expm1},
    {named::kFill, bound_overwrite},
    {named::kFmax, bound_clamp},
    {named::kFmin, bound_clamp},
    {"aten.ge.Scalar", bound_comparison},
    {"aten.ge.Tensor", bound_comparison},
    {"aten.gelu.default", bound_gelu},
    {"aten.gelu_backward.default", bound_activation_backward},
    {named::kGtNumber, bound_comparison},
    {named::kGt, bound_comparison},
    {"aten.hardtanh.default", bound_clamp},
    {"aten.histc.default", bound_histogram},
    {"aten.huber_loss.default", bound_loss<bound_huber_terms>},
    {"aten.isinf.default", bound_is_finite},
    {named::kIsnan, bound_is_finite},
    {"aten.le.Scalar", bound_comparison},
    {"aten.leaky_relu.default", bound_leaky_relu},
    {named::kLe, bound_comparison},
    {"aten.lerp.Scalar", bound_lerp},
    {"aten.linalg_vector_norm.default", bound_vector_norm},
    {"aten.log.default", bound_log},
    {"aten.log1p.default", bound_log1p},
    {"aten.log2.default", bound_log2},
    {named::kLtNumber, bound_comparison},
    {"aten.lt.Tensor", bound_comparison},
    {"aten.logcumsumexp.default", bound_logcumsumexp},
    {"aten.logsumexp.default", bound_logsumexp},
    {"aten.masked_fill.Scalar", bound_masked_fill},
    {"aten.masked_fill.Tensor", bound_masked_fill},
    {"aten.masked_scatter.default", bound_movement},
    {"aten.masked_scatter_backward.default", bound_movement},
    {"aten.masked_select.default", bound_movement},
    {"aten.max.default", bound_extreme},
    {"aten.max.dim", bound_choice},
    {named::kMaximum, bound_clamp},
    {"aten.min.default", bound_extreme},
    {"aten.min.dim", bound_least_choice},
    {named::kMinimum, bound_clamp},
    {"aten.mish.default", bound_nearly_flat},
    {"aten.mse_loss.default", bound_loss<bound_squares>},
    {named::kMulNumber, bound_mul},
    {named::kMul, bound_mul},
    {"aten.nansum.default", bound_nansum},
    {"aten.native_layer_norm_backward.default", bound_layer_norm_backward},
    {"aten.ne.Scalar", bound_comparison},
    {"aten.ne.Tensor", bound_comparison},
    {named::kNeg, bound_neg},
    {named::kPolar, bound_polar},
    {"aten.pow.Tensor_Scalar", bound_power},
    {"aten.prod.default", bound_product_of_row},
    {"aten.prod.dim_int", bound_product_of_row},
    {named::kReciprocal, bound_reciprocal},
    {"aten.relu.default", bound_clamp},
    {"aten.rsqrt.default", bound_rsqrt},
    {"aten.rsub.Scalar", bound_subtracted},
    {"aten.rsub.Tensor", bound_subtracted},
    {"aten.scatter_reduce.two", bound_scatter_reduce},
    {"aten.sigmoid.default", bound_flat},
    {"aten.silu.default", bound_nearly_flat},
    {"aten.sinh.default", bound_hyperbolic},
    {named::kSin, bound_flat},
    {"aten.smooth_l1_loss.default", bound_loss<find_bound_of_operands>},
    {"aten.softplus.default", bound_softplus},
    {named::kSqrt, bound_sqrt},
    {"aten.square.default", bound_square},
    {"aten.std.correction", bound_deviation},
    {"aten.std_mean.correction", bound_deviation_and_mean},
    {"aten.sub.Scalar", bound_add},
    {named::kSub, bound_add},
    {"aten.tanh.default", bound_flat},
    {"aten.var.correction", bound_variance},
    {"aten.var_mean.correction", bound_variance_and_mean},
    {"aten.where.Scalar", bound_where},
    {"aten.where.ScalarOther", bound_where},
    {"aten.where.ScalarSelf", bound_where},
    {named::kWhere, bound_where},
    {"aten.xlogy.Tensor", bound_activation_backward},  // linear but where the logarithm is not finite
    {"aten.zero_.default", bound_overwrite},
    {"bucketing._pre_bucket_reduce_scatter.default", bound_movement},
    {"higher_order.flex_attention_backward", bound_flex_attention_backward},
};

BoundRule find_rule(std::string_view target) {
  const auto* row = std::find_if(std::begin(kRules), std::end(kRules),
                                 [&](const RuleRow& rule) { return rule.target == target; });
  return row != std::end(kRules) ? row->rule : nullptr;
}

// The name of the op that writes nothing: aten.add.Tensor of aten.add_.Tensor.
std::string without_write(std::string_view target) {
  const std::size_t at = target.find("_.");
  std::string found(target);
  return at == std::string_view::npos ? found : found.erase(at, 1);
}

struct FamilyRow {
  OpFamily family;
  BoundRule rule;
};

constexpr FamilyRow kFamilyRules[] = {
    {OpFamily::kCast, bound_cast},
    {OpFamily::kLike, bound_new},
    {OpFamily::kNew, bound_new},
    {OpFamily::kRandom, bound_draw},
    {OpFamily::kIndexPut, bound_index_put},
    {OpFamily::kScatterAdd, bound_scatter_add},
    {OpFamily::kRowScatter, bound_row_scatter_add},
    {OpFamily::kIndexAdd, bound_index_add},
    {OpFamily::kEmbeddingBackward, bound_embedding_backward},
    {OpFamily::kAddMatmul, bound_added_product},
    {OpFamily::kConvolutionBackward, bound_convolution_backward},
    {OpFamily::kHalveBackward, bound_activation_backward},
    {OpFamily::kClassLoss, bound_loss<bound_no_terms>},
    {OpFamily::kLossBackward, bound_activation_backward},
};

// Of ops that add up elements or products of them.
BoundRule find_sum_rule(const OpInfo& op) {
  const OpFamily family = op.family;
  const bool is_sum = op.linearity == Linearity::kFirst;
  if (is_sum && (family == OpFamily::kSum || family == OpFamily::kReduce)) return bound_reduction;
  if (is_sum && family == OpFamily::kScan) return bound_scan;
  const bool is_product = family == OpFamily::kMatmul || family == OpFamily::kGroupedMatmul;
  return is_product && !op.find_param("scale_a") ? bound_product : nullptr;
}

// Of what a family of ops does alike.
BoundRule find_family_rule(const OpInfo& op) {
  const OpFamily family = op.family;
  if (family == OpFamily::kTopK || family == OpFamily::kSort) return bound_choice;
  const bool moves = copies_elements(family) || (family == OpFamily::kScatter && !op.find_param("reduce"));
  if (moves) return bound_movement;
  if (family == OpFamily::kAttention && op.params[0].name.starts_with("grad"))
    return bound_dot_product_backward;
  const auto* row = std::ranges::find(kFamilyRules, family, &FamilyRow::family);
  return row != std::end(kFamilyRules) ? row->rule : find_sum_rule(op);
}

}  // namespace

// Of a root, a norm, a magnitude and an even power 0; where a number is added, or what is so is
// scaled by a positive one, what follows.
std::optional<double> find_floor(const ErrorBounds& bounds, const BoundedCall& call, BoundRule rule) {
  if (rule == bound_sqrt || rule == bound_vector_norm || rule == bound_abs || rule == bound_square) return 0;
  if (rule == bound_power && std::fmod(number_at(call, 1), 2) == 0) return 0;
  if (call.args.size() < 2 || !call.args[0].is_tensor() || !call.args[1].is_number()) return {};
  const auto floor = bounds.floor_of(call.args[0].tensor());
  const double number = call.args[1].real();
  if (floor && rule == bound_add && call.args.size() > 2 && call.args[2].is_number())
    return *floor + (subtracted_operand(call.op) ? -1 : 1) * number * call.args[2].real();
  if (!floor || number <= 0) return {};
  if (rule == bound_mul) return *floor * number;
  return rule == bound_div ? std::optional(*floor / number) : std::nullopt;
}

bool is_conjugation(const OpInfo& op) {
  return find_bound_rule(op) == bound_conj;
}

BoundRule find_bound_rule(const OpInfo& op) {
  if (const BoundRule rule = find_family_rule(op)) return rule;
  if (const BoundRule rule = find_rule(op.target)) return rule;
  if (op.writes) return find_rule(without_write(op.target));
  const bool is_multiple = op.family == OpFamily::kElementwise && op.linearity == Linearity::kFirst;
  return is_multiple ? bound_multiple : nullptr;
}

}  // namespace epweave::replay
