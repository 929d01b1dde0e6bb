// Convolutions over one to three dimensions behind batch and channels.
#include <algorithm>
#include <optional>

#include "ops/rules.h"

namespace epweave::rules {
namespace {

// As backends see it: rows of one dimension as of two, the first of extent 1.
bool has_channels_last(TypeRuleCall& call, const TensorType& tensor) {
  Dims sizes = tensor.sizes, strides = tensor.strides;
  if (sizes.size() == 3 && strides.size() == 3) {
    strides.insert(strides.begin() + 2, call.exprs.mul(sizes[2], strides[2]));
    sizes.insert(sizes.begin() + 2, call.number(1));
  }
  return call.has_channels_last(sizes, strides);
}

// Like the input or the weight, where one of them has its channels innermost; an input of rows of
// one dimension is made contiguous first.
TypeId laid_out(TypeRuleCall& call, DType dtype, const Dims& sizes) {
  const auto position = [&](std::string_view name) { return *call.node.op->find_param(name); };
  const TensorType &input = call.tensor(position("input")), &weight = call.tensor(position("weight"));
  const bool is_like_input = input.rank() > 3 && has_channels_last(call, input);
  return is_like_input || has_channels_last(call, weight) ? call.channels_last(dtype, sizes, input.device)
                                                          : call.contiguous(dtype, sizes, input.device);
}

void check_operands(TypeRuleCall& call, const TensorType& input, const TensorType& weight) {
  if (input.rank() < 3 || input.rank() > 5)
    call.mismatch("the input has {} dimensions, 3 to 5 are wanted", input.rank());
  call.check_rank(weight, input.rank(), "the weight");
  if (input.dtype != weight.dtype)
    call.mismatch("dtypes {} and {} differ", info(input.dtype).short_name, info(weight.dtype).short_name);
}

// Number i of a list that has one for each dimension, or one for all.
ExprId number_of(TypeRuleCall& call, std::size_t param, std::size_t i) {
  const Dims numbers = call.extents(param);
  if (numbers.empty()) call.mismatch("'{}' has no number", call.name_of(param));
  return numbers[std::min(i, numbers.size() - 1)];
}

enum Param : std::size_t { kBias = 2, kStride, kPadding, kDilation, kTransposed, kOutputPadding, kGroups };

// How far a window reaches: from its first element to its last.
ExprId reach(TypeRuleCall& call, const TensorType& weight, std::size_t i) {
  return call.exprs.mul(number_of(call, kDilation, i), call.exprs.sub(weight.sizes[i + 2], call.number(1)));
}
ExprId window_count(TypeRuleCall& call, const TensorType& weight, ExprId extent, std::size_t i) {
  ExprPool& pool = call.exprs;
  const ExprId padded = pool.add(extent, pool.mul(call.number(2), number_of(call, kPadding, i)));
  const ExprId last = pool.sub(pool.sub(padded, reach(call, weight, i)), call.number(1));
  return pool.add(pool.floordiv(last, number_of(call, kStride, i)), call.number(1));
}
ExprId transposed_extent(TypeRuleCall& call, const TensorType& weight, ExprId extent, std::size_t i) {
  ExprPool& pool = call.exprs;
  const ExprId first = pool.mul(pool.sub(extent, call.number(1)), number_of(call, kStride, i));
  const ExprId cut = pool.sub(first, pool.mul(call.number(2), number_of(call, kPadding, i)));
  const ExprId end = pool.add(pool.add(cut, reach(call, weight, i)), call.number(1));
  return pool.add(end, number_of(call, kOutputPadding, i));
}

}  // namespace

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups).
TypeId convolution(TypeRuleCall& call) {
  const TensorType &input = call.tensor(std::size_t{0}), &weight = call.tensor(1);
  check_operands(call, input, weight);
  const bool is_transposed = call.boolean(kTransposed);
  const ExprId groups = call.extent(kGroups);
  const ExprId channels = call.exprs.mul(weight.sizes[1], groups);
  call.check_equal(input.sizes[1], is_transposed ? weight.sizes[0] : channels, "channels");
  Dims sizes{input.sizes[0], is_transposed ? channels : weight.sizes[0]};
  for (std::size_t i = 0; i + 2 < input.rank(); ++i)
    sizes.push_back(is_transposed ? transposed_extent(call, weight, input.sizes[i + 2], i)
                                  : window_count(call, weight, input.sizes[i + 2], i));
  if (const TensorType* bias = call.optional_tensor(kBias)) {
    call.check_rank(*bias, 1, "the bias");
    call.check_equal(bias->sizes[0], sizes[1], "channels of the bias");
  }
  return laid_out(call, input.dtype, sizes);
}

// convolution_backward(grad_output, input, weight, bias_sizes, .., output_mask): the gradients of
// input, weight and bias that are wanted.
TypeId convolution_backward(TypeRuleCall& call) {
  const TensorType &grad = call.tensor(std::size_t{0}), &input = call.tensor(1), &weight = call.tensor(2);
  check_operands(call, input, weight);
  call.check_rank(grad, input.rank(), "the gradient");
  call.check_equal(grad.sizes[0], input.sizes[0], "batch sizes");
  const auto wanted = call.list(call.arg(*call.node.op->find_param("output_mask")));
  const auto is_wanted = [&](std::size_t i) { return i < wanted.size() && wanted[i] == Arg::boolean(true); };
  return call.tuple({is_wanted(0) ? laid_out(call, input.dtype, input.sizes) : call.none(),
                     is_wanted(1) ? laid_out(call, weight.dtype, weight.sizes) : call.none(),
                     is_wanted(2) ? call.contiguous(grad.dtype, {grad.sizes[1]}, grad.device) : call.none()});
}

}  // namespace epweave::rules
