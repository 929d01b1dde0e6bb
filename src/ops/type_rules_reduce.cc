// Reductions, normalisations, scans and sorts. Results of reductions are contiguous.
#include <algorithm>

#include "ir/types/promotion.h"
#include "ops/rules.h"

namespace epweave::rules {
namespace {

Dims reduced_sizes(TypeRuleCall& call, const TensorType& self, std::span<const std::size_t> dims,
                   bool keeps) {
  Dims sizes;
  for (std::size_t i = 0; i < self.rank(); ++i) {
    const bool is_reduced = dims.empty() || std::find(dims.begin(), dims.end(), i) != dims.end();
    if (!is_reduced) {
      sizes.push_back(self.sizes[i]);
    } else if (keeps) {
      sizes.push_back(call.number(1));
    }
  }
  return sizes;
}

bool is_true(Arg flag) {
  return flag.is(ArgKind::kBool) && flag.as_bool();
}

// The last dimensions must be `normalized` (parameter `param`); gives how many come before.
std::size_t outer_rank(TypeRuleCall& call, const TensorType& self, std::size_t param) {
  const Dims normalized = call.extents(param);
  if (normalized.size() > self.rank())
    call.mismatch("{} dimensions, {} are normalised", self.rank(), normalized.size());
  const std::size_t outer = self.rank() - normalized.size();
  for (std::size_t i = 0; i < normalized.size(); ++i)
    call.check_equal(self.sizes[outer + i], normalized[i], "normalised sizes");
  return outer;
}

// Outer dimensions, then 1s: the shape of mean and rstd.
Dims statistics_sizes(TypeRuleCall& call, const TensorType& self, std::size_t outer) {
  Dims sizes = self.sizes;
  for (std::size_t i = outer; i < sizes.size(); ++i) sizes[i] = call.number(1);
  return sizes;
}

void check_same_sizes(TypeRuleCall& call, const TensorType& a, const TensorType& b) {
  call.check_rank(b, a.rank(), "an argument");
  for (std::size_t i = 0; i < a.rank(); ++i) call.check_equal(a.sizes[i], b.sizes[i], "sizes");
}

}  // namespace

// sum(self, *, dtype).
TypeId sum_all(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(call.dtype_or(1, to_sum(self.dtype)), {}, self.device);
}

// mean(self, *, dtype).
TypeId mean_all(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(call.dtype_or(1, self.dtype), {}, self.device);
}

// sum, prod (self, dim, keepdim, *, dtype).
TypeId sum_dims(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const auto dims = call.dims(1, self.rank());
  return call.contiguous(call.dtype_or(3, to_sum(self.dtype)),
                         reduced_sizes(call, self, dims, call.boolean(2)), self.device);
}

TypeId mean_dims(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const auto dims = call.dims(1, self.rank());
  return call.contiguous(call.dtype_or(3, self.dtype), reduced_sizes(call, self, dims, call.boolean(2)),
                         self.device);
}

// logsumexp (self, dim, keepdim), of integers in the default floating type.
TypeId logsumexp(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(to_float(self.dtype),
                         reduced_sizes(call, self, call.dims(1, self.rank()), call.boolean(2)), self.device);
}

// amax, amin (self, dim, keepdim).
TypeId reduce_dims(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(self.dtype, reduced_sizes(call, self, call.dims(1, self.rank()), call.boolean(2)),
                         self.device);
}

TypeId reduce_all(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(self.dtype, {}, self.device);
}

// any, all. uint8 stays uint8.
TypeId reduce_bool_all(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(self.dtype == DType::kUint8 ? DType::kUint8 : DType::kBool, {}, self.device);
}

// An empty list names no dimension here, where other reductions take all for it.
TypeId reduce_bool_dims(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const std::vector<std::size_t> dims = call.dims(1, self.rank());
  const bool reduces_none = call.arg(1).is_list() && dims.empty();
  return call.contiguous(self.dtype == DType::kUint8 ? DType::kUint8 : DType::kBool,
                         reduces_none ? self.sizes : reduced_sizes(call, self, dims, call.boolean(2)),
                         self.device);
}

// max, min (self, dim, keepdim): (values, indices).
TypeId extreme_dim(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const Dims sizes = reduced_sizes(call, self, call.dims(1, self.rank()), call.boolean(2));
  return call.tuple(
      {call.contiguous(self.dtype, sizes, self.device), call.contiguous(DType::kInt64, sizes, self.device)});
}

// aminmax (self, *, dim=None, keepdim): (min, max).
TypeId extremes(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const TypeId extreme = call.contiguous(
      self.dtype, reduced_sizes(call, self, call.dims(1, self.rank()), call.boolean(2)), self.device);
  return call.tuple({extreme, extreme});
}

// argmax, argmin (self, dim=None, keepdim).
TypeId argextreme(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(DType::kInt64, reduced_sizes(call, self, call.dims(1, self.rank()), call.boolean(2)),
                         self.device);
}

// var, std (self, dim, *, correction, keepdim).
TypeId variance(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(to_real(self.dtype),
                         reduced_sizes(call, self, call.dims(1, self.rank()), call.boolean(3)), self.device);
}

TypeId variance_mean(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const Dims sizes = reduced_sizes(call, self, call.dims(1, self.rank()), call.boolean(3));
  return call.tuple({call.contiguous(to_real(self.dtype), sizes, self.device),
                     call.contiguous(self.dtype, sizes, self.device)});
}

// linalg_vector_norm(self, ord, dim, keepdim, *, dtype).
TypeId vector_norm(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(to_real(call.dtype_or(4, self.dtype)),
                         reduced_sizes(call, self, call.dims(2, self.rank()), call.boolean(3)), self.device);
}

// cumsum, cumprod (self, dim, *, dtype).
// logcumsumexp (self, dim), of floats.
TypeId scan_floats(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  call.dim_or_scalar(1, self.rank());
  if (!is_floating(self.dtype)) call.mismatch("it is not defined for {}", info(self.dtype).name);
  return call.contiguous(self.dtype, self.sizes, self.device);
}
TypeId scan(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  call.dim_or_scalar(1, self.rank());
  return call.contiguous(call.dtype_or(2, to_sum(self.dtype)), self.sizes, self.device);
}

TypeId scan_in_place(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  call.dim_or_scalar(1, self.rank());
  if (const DType dtype = call.dtype_or(2, self.dtype); dtype != self.dtype)
    call.mismatch("the result is {}, the tensor written {}", info(dtype).short_name,
                  info(self.dtype).short_name);
  return call.same(self);
}

// cummax(self, dim): (values, indices).
TypeId scan_extreme(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  call.dim_or_scalar(1, self.rank());
  return call.tuple({call.contiguous(self.dtype, self.sizes, self.device),
                     call.contiguous(DType::kInt64, self.sizes, self.device)});
}

// _softmax, _log_softmax (self, dim, half_to_float).
TypeId softmax(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  call.dim_or_scalar(1, self.rank());
  if (!call.boolean(2)) return call.contiguous(self.dtype, self.sizes, self.device);
  if (self.dtype != DType::kFloat16 && self.dtype != DType::kBfloat16)
    call.mismatch("half_to_float of {}", info(self.dtype).short_name);
  return call.contiguous(DType::kFloat32, self.sizes, self.device);
}

// _safe_softmax(self, dim, dtype).
TypeId safe_softmax(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  call.dim_or_scalar(1, self.rank());
  return call.contiguous(call.dtype_or(2, self.dtype), self.sizes, self.device);
}

// _softmax_backward_data (grad_output, output, dim, input_dtype).
TypeId softmax_backward(TypeRuleCall& call) {
  const TensorType &grad = call.tensor(std::size_t{0}), &output = call.tensor(std::size_t{1});
  check_same_sizes(call, grad, output);
  call.dim_or_scalar(2, grad.rank());
  return call.contiguous(call.dtype_or(3, grad.dtype), grad.sizes, grad.device);
}
// _log_softmax_backward_data: the same, but laid out as the operands.
TypeId log_softmax_backward(TypeRuleCall& call) {
  const TensorType &grad = call.tensor(std::size_t{0}), &output = call.tensor(std::size_t{1});
  check_same_sizes(call, grad, output);
  call.dim_or_scalar(2, grad.rank());
  const Layout layouts[] = {layout_of(grad), layout_of(output)};
  return call.result(call.dtype_or(3, grad.dtype), grad.sizes,
                     elementwise_strides(call.facts, grad.sizes, layouts), grad.device);
}

// topk(self, k, dim, largest, sorted): (values, indices).
TypeId topk(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  const std::size_t dim = call.dim_or_scalar(2, self.rank());
  const ExprId k = call.extent(1);
  Dims sizes = self.sizes;
  if (self.rank() > 0) {
    if (call.facts.at_least(k, call.exprs.add(sizes[dim], call.number(1))))
      call.mismatch("k is {}, the dimension has {}", call.text(k), call.text(sizes[dim]));
    sizes[dim] = k;
  }
  return call.tuple(
      {call.contiguous(self.dtype, sizes, self.device), call.contiguous(DType::kInt64, sizes, self.device)});
}

TypeId sort(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.tuple({call.laid_out_like(self, self.dtype), call.laid_out_like(self, DType::kInt64)});
}

TypeId argsort(TypeRuleCall& call) {
  return call.fresh_like(call.tensor(std::size_t{0}), DType::kInt64);
}

// _fused_rms_norm(input, normalized_shape, weight, eps): (output, rstd).
TypeId rms_norm(TypeRuleCall& call) {
  const TensorType& input = call.tensor(std::size_t{0});
  const std::size_t outer = outer_rank(call, input, 1);
  return call.tuple(
      {call.contiguous(input.dtype, input.sizes, input.device),
       call.contiguous(to_accumulate(input.dtype), statistics_sizes(call, input, outer), input.device)});
}

// _fused_rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask): (grad
// input, grad weight).
TypeId rms_norm_backward(TypeRuleCall& call) {
  const TensorType &grad = call.tensor(std::size_t{0}), &input = call.tensor(std::size_t{1});
  check_same_sizes(call, grad, input);
  outer_rank(call, input, 2);
  const TensorType* weight = call.optional_tensor(4);
  const auto wanted = call.list(call.arg(5));
  const bool wants_weight = weight != nullptr && wanted.size() > 1 && is_true(wanted[1]);
  return call.tuple({!wanted.empty() && is_true(wanted[0])
                         ? call.contiguous(input.dtype, input.sizes, input.device)
                         : call.none(),
                     wants_weight ? call.contiguous(input.dtype, weight->sizes, input.device) : call.none()});
}

// native_layer_norm(input, normalized_shape, weight, bias, eps): (output, mean, rstd). On the CPU
// statistics have the input's dtype (torch._meta_registrations).
TypeId layer_norm(TypeRuleCall& call) {
  const TensorType& input = call.tensor(std::size_t{0});
  const std::size_t outer = outer_rank(call, input, 1);
  const bool is_on_cpu = call.context.text(input.device).starts_with("cpu");
  const TypeId statistics = call.contiguous(is_on_cpu ? input.dtype : to_accumulate(input.dtype),
                                            statistics_sizes(call, input, outer), input.device);
  return call.tuple({call.contiguous(input.dtype, input.sizes, input.device), statistics, statistics});
}

namespace {

// Fake tensors have it of elementwise steps on rstd and the gradient. What is computed in another
// dtype is made contiguous first.
TypeId gradient_of_rows(TypeRuleCall& call, const TensorType& grad, const TensorType& input) {
  TensorType rstd = call.tensor(4);
  const bool is_as_stored = info(input.dtype).bytes >= 4 && grad.dtype == input.dtype;
  if (!is_as_stored || rstd.rank() > grad.rank())
    return call.contiguous(input.dtype, input.sizes, input.device);
  while (rstd.rank() < grad.rank()) {
    rstd.sizes.push_back(call.number(1));
    rstd.strides.push_back(call.number(1));
  }
  const Layout layouts[] = {layout_of(rstd), layout_of(grad)};
  return call.result(input.dtype, input.sizes, elementwise_strides(call.facts, input.sizes, layouts),
                     input.device);
}

}  // namespace

// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias,
// output_mask).
TypeId layer_norm_backward(TypeRuleCall& call) {
  const TensorType &grad = call.tensor(std::size_t{0}), &input = call.tensor(std::size_t{1});
  check_same_sizes(call, grad, input);
  outer_rank(call, input, 2);
  const auto wanted = call.list(call.arg(7));
  std::vector<TypeId> results;
  const TensorType* sources[] = {&input, call.optional_tensor(5), call.optional_tensor(6)};
  for (std::size_t i = 0; i < 3; ++i) {
    const bool is_wanted = i < wanted.size() && is_true(wanted[i]) && sources[i] != nullptr;
    if (!is_wanted)
      results.push_back(call.none());
    else if (i == 0)
      results.push_back(gradient_of_rows(call, grad, input));
    else
      results.push_back(call.contiguous(sources[i]->dtype, sources[i]->sizes, input.device));
  }
  return call.tuple(std::move(results));
}

// nll_loss_forward(self, target, weight, reduction, ignore_index): (loss, total weight).
TypeId nll_loss(TypeRuleCall& call) {
  const TensorType &self = call.tensor(std::size_t{0}), &target = call.tensor(std::size_t{1});
  if (self.rank() == 0 || self.rank() > 2) call.mismatch("{} dimensions, 1 or 2 are wanted", self.rank());
  if (self.rank() == 2)
    call.check_equal(self.sizes[0], target.rank() == 0 ? self.sizes[0] : target.sizes[0], "batches");
  if (const TensorType* weight = call.optional_tensor(2)) {
    if (weight->rank() != 1) call.mismatch("a weight of {} dimensions, 1 is wanted", weight->rank());
    call.check_equal(self.sizes.back(), weight->sizes[0], "classes");
  }
  constexpr std::int64_t kNoReduction = 0;
  const bool is_each = call.integer(3) == kNoReduction && self.rank() == 2;
  return call.tuple({call.contiguous(self.dtype, is_each ? Dims{self.sizes[0]} : Dims(), self.device),
                     call.contiguous(self.dtype, {}, self.device)});
}

TypeId nll_loss_backward(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{1});
  return call.contiguous(self.dtype, self.sizes, self.device);
}

namespace {

// Terms of this type, or one number.
TypeId reduce_terms(TypeRuleCall& call, TypeId terms) {
  constexpr std::int64_t kNoReduction = 0;
  if (call.integer(*call.node.op->find_param("reduction")) == kNoReduction) return terms;
  const TensorType& type = *tensor_of(call.context, terms);
  return call.contiguous(type.dtype, {}, type.device);
}

}  // namespace

// mse_loss(self, target, reduction) and its relatives.
TypeId loss(TypeRuleCall& call) {
  return reduce_terms(call, binary(call));
}
TypeId cross_entropy(TypeRuleCall& call) {
  return reduce_terms(call, binary_second_first(call));
}
// Computed in place of 1 - target: in the target's dtype.
TypeId cross_entropy_with_logits(TypeRuleCall& call) {
  return reduce_terms(call, binary_in_second(call));
}

// histc(self, bins, min, max); bincount's length depends on the data.
TypeId histc(TypeRuleCall& call) {
  const TensorType& self = call.tensor(std::size_t{0});
  return call.contiguous(self.dtype, {call.extent(1)}, self.device);
}

}  // namespace epweave::rules
