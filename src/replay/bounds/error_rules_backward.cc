// Bounds of gradients with respect to inputs: linear maps L of an incoming gradient g, whose
// coefficients are the same in both graphs. With L' the same map on magnitudes, and n the longest
// chain of additions in it,
//
//   bound(L g) = L' (bound(g) + n u (|g| + bound(g)))
#include "replay/bounds/error_rules.h"

#include <cmath>

namespace epweave::replay {
namespace {

void require_exact(ErrorBounds& bounds, const BoundedCall& call, std::initializer_list<std::size_t> params) {
  for (std::size_t param : params)
    if (param < call.args.size() && bounds.has_any(call.args[param])) throw NoBound();
}

// Of a sum of so many elements of it.
Tensor widen_sum(ErrorBounds& bounds, const Tensor& grad, std::int64_t terms) {
  return widen(bounds, grad, sum_error(terms, grad.dtype));
}

Tensor sum_over(ErrorBounds& bounds, const Tensor& tensor, const Value& dims) {
  return bounds.apply(named::kSum, {tensor, dims, true});
}

const Tensor* result_at(const BoundedCall& call, std::size_t i) {
  if (!call.result.is<List>() || i >= call.result.items().size()) throw NoBound();
  const Value& item = call.result.items()[i];
  return item.is_tensor() ? &item.tensor() : nullptr;
}

// The dimensions that a norm is taken over, the last ones, and how many elements they have.
struct Normalised {
  Value dims;
  std::int64_t length = 1;
};
Normalised find_normalised(const Tensor& input, const Value& shape) {
  std::vector<Value> dims;
  std::int64_t length = 1;
  for (std::int64_t d = 1; d <= static_cast<std::int64_t>(shape.integers().size()); ++d) {
    length *= input.size(-d);
    dims.emplace_back(-d);
  }
  return {Value::list(std::move(dims)), length};
}

}  // namespace

// With h = input * rstd and s = grad * weight: the input's gradient is rstd * (s - h * mean(s *
// h)), row by row; the weight's is the sum over rows of grad * h.
void bound_rms_norm_backward(ErrorBounds& bounds, const BoundedCall& call) {
  require_exact(bounds, call, {1, 3, 4});
  const Tensor &grad = tensor_at(call, 0), &input = tensor_at(call, 1);
  const Tensor x = bounds.magnitude(input), rstd = bounds.magnitude(tensor_at(call, 3));
  const Normalised normalised = find_normalised(input, call.args[2]);
  if (const Tensor* of_input = result_at(call, 0); of_input != nullptr && bounds.find(grad)) {
    const Tensor wide = widen_sum(bounds, grad, normalised.length + 8);
    const Tensor scaled =
        call.args[4].is_tensor() ? bounds.multiply(wide, bounds.magnitude(call.args[4].tensor())) : wide;
    const Tensor h = bounds.multiply(x, rstd);
    const Tensor mean = bounds.scale(sum_over(bounds, bounds.multiply(scaled, h), normalised.dims),
                                     1 / static_cast<double>(normalised.length));
    set_rounded(bounds, *of_input, bounds.multiply(rstd, bounds.add(scaled, bounds.multiply(h, mean))));
  }
  if (const Tensor* of_weight = result_at(call, 1); of_weight != nullptr) {
    const std::int64_t rows = input.numel() / std::max<std::int64_t>(normalised.length, 1);
    std::vector<Value> args(call.args.begin(), call.args.end());
    args[0] = widen_sum(bounds, grad, rows + 4);
    args[1] = x;
    args[3] = rstd;
    if (args[4].is_tensor()) args[4] = bounds.magnitude(args[4].tensor());
    set_rounded(bounds, *of_weight, run_op(bounds, call.op, std::move(args)).items().at(1).tensor());
  }
}

// With h = (input - mean) * rstd and s = grad * weight: the input's gradient is rstd * (s - mean(s)
// - h * mean(s * h)), row by row; the weight's is the sum over rows of grad * h, the bias's that of
// grad. The op on magnitudes gives the latter two.
void bound_layer_norm_backward(ErrorBounds& bounds, const BoundedCall& call) {
  require_exact(bounds, call, {1, 3, 4, 5});
  const Tensor &grad = tensor_at(call, 0), &input = tensor_at(call, 1);
  const Normalised normalised = find_normalised(input, call.args[2]);
  const auto to_float = [&](std::size_t param) {
    return bounds.apply(named::kCast, {tensor_at(call, param), DType::kFloat32});
  };
  const Tensor rstd = to_float(4);
  const Tensor h =
      bounds.magnitude(bounds.multiply(bounds.add(to_float(1), bounds.scale(to_float(3), -1)), rstd));
  if (const Tensor* of_input = result_at(call, 0); of_input != nullptr && bounds.find(grad)) {
    const Tensor wide = widen_sum(bounds, grad, normalised.length + 8);
    const Tensor scaled =
        call.args[5].is_tensor() ? bounds.multiply(wide, bounds.magnitude(call.args[5].tensor())) : wide;
    const auto mean = [&](const Tensor& of) {
      return bounds.scale(sum_over(bounds, of, normalised.dims), 1 / static_cast<double>(normalised.length));
    };
    const Tensor along_h = bounds.multiply(h, mean(bounds.multiply(scaled, h)));
    set_rounded(bounds, *of_input,
                bounds.multiply(rstd, bounds.add(bounds.add(scaled, mean(scaled)), along_h)));
  }
  const std::int64_t rows = input.numel() / std::max<std::int64_t>(normalised.length, 1);
  std::vector<Value> args(call.args.begin(), call.args.end());
  args[0] = widen_sum(bounds, grad, rows + 4);
  args[1] = h;
  args[3] = bounds.scale(rstd, 0);
  args[4] = bounds.apply("aten.ones_like.default", {rstd});
  const Value sums = run_op(bounds, call.op, std::move(args));
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
    if (const Tensor* result = result_at(call, i); result != nullptr)
      set_rounded(bounds, *result, sums.items().at(i).tensor());
}

// grad * f'(x), whatever else f takes.
void bound_activation_backward(ErrorBounds& bounds, const BoundedCall& call) {
  if (call.op.writes) throw NoBound();
  std::vector<Value> args(call.args.begin(), call.args.end());
  for (std::size_t i = 1; i < args.size(); ++i) require_exact(bounds, call, {i});
  args[0] = widen_sum(bounds, tensor_at(call, 0), 4);
  const Value product = run_op(bounds, call.op, std::move(args));
  set_rounded(bounds, call.result.tensor(), bounds.magnitude(product.tensor()));
}

// output * (grad - sum(grad * output)), of which the output may be off, too.
void bound_softmax_backward(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &grad = tensor_at(call, 0), &result = only_result(call);
  const Tensor wide = widen_sum(bounds, grad, extent_along(grad, call.args[2]) + 4);
  const Tensor weight = bounds.magnitude(tensor_at(call, 1)),
               of_weight = bounds.find_or_zero(tensor_at(call, 1));
  const Tensor most = bounds.add(weight, of_weight);
  const auto total = [&](const Tensor& of) { return sum_over(bounds, of, Value::list({call.args[2]})); };
  Tensor bound = bounds.multiply(most, bounds.add(wide, total(bounds.multiply(wide, most))));
  if (bounds.find(tensor_at(call, 1))) {
    const Tensor size = bounds.magnitude(grad);
    const Tensor moved = total(bounds.multiply(size, of_weight));
    bound = bounds.add(bound, bounds.multiply(most, moved));
    bound =
        bounds.add(bound, bounds.multiply(of_weight, bounds.add(size, total(bounds.multiply(size, weight)))));
  }
  set_rounded(bounds, result, bound);
}

// grad - exp(output) * sum(grad), of which the output may be off, too.
void bound_log_softmax_backward(ErrorBounds& bounds, const BoundedCall& call) {
  const Tensor &grad = tensor_at(call, 0), &output = tensor_at(call, 1);
  const Tensor weight = bounds.apply(named::kExp, {bounds.narrow(output)});
  const Tensor wide = widen_sum(bounds, grad, extent_along(grad, call.args[2]) + 4);
  const auto total = [&](const Tensor& of) { return sum_over(bounds, of, Value::list({call.args[2]})); };
  Tensor most = weight, bound = wide;
  if (bounds.find(output)) {
    // Off by exp(X) (exp(B) - 1) at most, and by exp(X + B), which is 0 of what is masked.
    const Tensor of_output = bounds.find_or_zero(output);
    const Tensor moved = bounds.apply(
        named::kFmin, {bounds.multiply(weight, bounds.apply(named::kExpm1, {of_output})),
                       bounds.apply(named::kExp, {bounds.add(bounds.narrow(output), of_output)})});
    most = bounds.add(weight, moved);
    bound = bounds.add(bound, bounds.multiply(moved, total(bounds.magnitude(grad))));
  }
  set_rounded(bounds, only_result(call), bounds.add(bound, bounds.multiply(most, total(wide))));
}

// With weights P, g the gradient of `out`, V the values:
//   d value = P' g     d score = P (g V' - sum(out g) + g_lse)     d query = d score K     d key = d score' Q
//
// On magnitudes this is the op itself on |V|, -|out|, and keys and queries beside their magnitudes:
// of
//
//   query [Q  0  |Q|]     key [K  |K|  0]
//
// the products are those of Q and K, so the weights are the same; d query has d score |K| in its
// second third, d key has d score' |Q| in its third.
namespace {

// Where a call of attention's backward has its arguments.
struct AttentionParams {
  std::size_t query, key, value, out, lse, grad_out;
};

// The call's arguments, but on magnitudes.
std::vector<Value> take_magnitudes(ErrorBounds& bounds, const BoundedCall& call, const AttentionParams& at,
                                   std::int64_t terms) {
  const Tensor &query = tensor_at(call, at.query), &key = tensor_at(call, at.key);
  const auto wide_copy = [&](const Tensor& tensor) {
    return bounds.apply(named::kCast, {tensor, DType::kFloat32});
  };
  const auto beside = [&](const Tensor& a, const Tensor& b, const Tensor& c) {
    return bounds.apply(named::kCat, {Value::list({a, b, c}), std::int64_t{-1}});
  };
  const auto zero = [&](const Tensor& like) { return bounds.scale(bounds.magnitude(like), 0); };
  std::vector<Value> args(call.args.begin(), call.args.end());
  args[at.query] = beside(wide_copy(query), zero(query), bounds.magnitude(query));
  args[at.key] = beside(wide_copy(key), bounds.magnitude(key), zero(key));
  args[at.value] = bounds.magnitude(tensor_at(call, at.value));
  args[at.out] = bounds.scale(bounds.magnitude(tensor_at(call, at.out)), -1);
  args[at.grad_out] = widen_sum(bounds, tensor_at(call, at.grad_out), terms);
  return args;
}

// Of the longest chain of additions.
std::int64_t count_terms(const BoundedCall& call, const AttentionParams& at) {
  const Tensor &query = tensor_at(call, at.query), &key = tensor_at(call, at.key);
  const std::int64_t shared = query.size(1) / std::max<std::int64_t>(key.size(1), 1);
  return query.size(2) * shared + key.size(2) + 2 * tensor_at(call, at.value).size(3) + 16;
}

// What the op made of the magnitudes bounds the gradients of query, key and value.
void set_gradients(ErrorBounds& bounds, const BoundedCall& call, const Value& magnitudes,
                   std::int64_t depth) {
  const auto third = [&](std::size_t result, std::int64_t which) {
    return bounds.apply(
        named::kSlice, {magnitudes.items().at(result), std::int64_t{-1}, which * depth, (which + 1) * depth});
  };
  const Tensor found[] = {third(0, 1), third(1, 2), magnitudes.items().at(2).tensor()};
  for (std::size_t i = 0; i < std::size(found); ++i)
    if (const Tensor* result = result_at(call, i)) set_rounded(bounds, *result, found[i]);
}

}  // namespace

// A score function must hand its gradient on as it is: the sign of another's is not known.
void bound_flex_attention_backward(ErrorBounds& bounds, const BoundedCall& call) {
  enum Param : std::size_t { kQuery, kKey, kValue, kOut, kLse, kGradOut, kGradLse, kForward, kJoint };
  constexpr std::size_t kGradOfScore = 5;  // of the joint function's parameters
  constexpr AttentionParams kAt{kQuery, kKey, kValue, kOut, kLse, kGradOut};
  require_exact(bounds, call, {kQuery, kKey, kValue, kOut, kLse});
  if (!call.args[kJoint].is<Function>() || call.args[kJoint].as<Function>().returned_param != kGradOfScore)
    throw NoBound();
  const std::int64_t terms = count_terms(call, kAt);
  std::vector<Value> args = take_magnitudes(bounds, call, kAt, terms);
  if (args[kGradLse].is_tensor()) args[kGradLse] = widen_sum(bounds, args[kGradLse].tensor(), terms);
  set_gradients(bounds, call, run_op(bounds, call.op, std::move(args)), tensor_at(call, kQuery).size(3));
}

// Scaled dot product attention: cuDNN's, flash and memory-efficient. A bias is added to scores and
// changes nothing here. The scale that is not given is that of the original depth.
void bound_dot_product_backward(ErrorBounds& bounds, const BoundedCall& call) {
  const auto param = [&](std::string_view name) {
    const auto found = call.op.find_param(name);
    EPWEAVE_CHECK(found.has_value());
    return *found;
  };
  const AttentionParams at{param("query"), param("key"), param("value"), param("out"), param("logsumexp"), 0};
  require_exact(bounds, call, {at.query, at.key, at.value, at.out, at.lse});
  for (const std::string_view name : {"attn_bias", "attn_mask"})
    if (const auto bias = call.op.find_param(name)) require_exact(bounds, call, {*bias});
  std::vector<Value> args = take_magnitudes(bounds, call, at, count_terms(call, at));
  const std::int64_t depth = tensor_at(call, at.query).size(3);
  if (Value& scale = args[param("scale")]; scale.is_none())
    scale = 1.0 / std::sqrt(static_cast<double>(depth));
  set_gradients(bounds, call, run_op(bounds, call.op, std::move(args)), depth);
}

}  // namespace epweave::replay
