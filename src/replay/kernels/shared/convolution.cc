#include "replay/kernels/shared/convolution.h"

#include <algorithm>

#include "replay/kernels/host/elements.h"
#include "replay/kernels/shared/reduction.h"

namespace epweave::replay::shared {
namespace {

// What a convolution, by its own arguments or by its derivative's, is called with.
struct Windows {
  Extents kernel, stride, padding, dilation;  // by dimension behind batch and channels
  std::int64_t groups;
  bool is_transposed;
  std::size_t rank() const { return kernel.size(); }
};

// A number for each dimension: the list's, or its only one.
Extents numbers_for(const Value& list, std::size_t rank) {
  Extents numbers = list.integers();
  if (numbers.size() == 1) numbers.resize(rank, numbers.front());
  if (numbers.size() != rank) throw KernelError("convolution: a list of other dimensions");
  return numbers;
}

Windows read_windows(const KernelCall& call, const Tensor& weight, std::size_t first) {
  if (weight.rank() < 3) throw KernelError("convolution: at least three dimensions");
  Windows windows;
  windows.kernel.assign(weight.sizes.begin() + 2, weight.sizes.end());
  windows.stride = numbers_for(call[first], windows.rank());
  windows.padding = numbers_for(call[first + 1], windows.rank());
  windows.dilation = numbers_for(call[first + 2], windows.rank());
  windows.is_transposed = call.boolean(first + 3);
  windows.groups = call.integer(first + 5);
  const auto is_below = [](const Extents& numbers, std::int64_t least) {
    return std::ranges::any_of(numbers, [&](std::int64_t number) { return number < least; });
  };
  if (is_below(windows.stride, 1) || is_below(windows.dilation, 1) || is_below(windows.padding, 0) ||
      windows.groups < 1)
    throw KernelError("convolution: strides, dilations and groups from 1 on, paddings from 0 on");
  return windows;
}

void check_operands(const Tensor& input, const Tensor& weight, const Windows& windows) {
  if (input.rank() != weight.rank()) throw KernelError("convolution: other dimensions than the weight has");
  if (input.dtype != weight.dtype) throw KernelError("convolution: different dtypes");
  const std::int64_t channels = windows.is_transposed ? weight.sizes[0] : weight.sizes[1] * windows.groups;
  if (input.sizes[1] != channels || weight.sizes[0] % windows.groups != 0)
    throw KernelError("convolution: other channels than the weight has");
}

// How many windows lie over an extent.
std::int64_t count_windows(const Windows& windows, std::int64_t extent, std::size_t i) {
  const std::int64_t last =
      extent + 2 * windows.padding[i] - windows.dilation[i] * (windows.kernel[i] - 1) - 1;
  return last < 0 ? 0 : last / windows.stride[i] + 1;
}

// Sizes of batch and channels, and those behind them.
Extents joined(std::initializer_list<std::int64_t> first, std::initializer_list<Extents> rest) {
  Extents sizes(first);
  for (const Extents& each : rest) sizes.insert(sizes.end(), each.begin(), each.end());
  return sizes;
}
Extents behind_channels(const Tensor& tensor) {
  return {tensor.sizes.begin() + 2, tensor.sizes.end()};
}

// A view of [batch, groups, channels of a group, places of a window.., windows..].
struct WindowView {
  Extents first, place_steps, window_steps, counts;  // in elements of each dimension
};
Tensor view_windows(const Tensor& tensor, const Windows& windows, const WindowView& of) {
  const std::int64_t channels = tensor.sizes[1] / windows.groups;
  Extents sizes{tensor.sizes[0], windows.groups, channels};
  Extents strides{tensor.strides[0], tensor.strides[1] * channels, tensor.strides[1]};
  std::int64_t offset = tensor.offset;
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    sizes.push_back(windows.kernel[i]);
    strides.push_back(tensor.strides[i + 2] * of.place_steps[i]);
    offset += tensor.strides[i + 2] * of.first[i];
  }
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    sizes.push_back(of.counts[i]);
    strides.push_back(tensor.strides[i + 2] * of.window_steps[i]);
  }
  return tensor.view(std::move(sizes), std::move(strides), offset);
}

// Zeros of `sizes` behind batch and channels, with the tensor's elements `step` apart from `first`
// on.
Tensor spread_out(Scratch& scratch, const Tensor& tensor, const Extents& sizes, const Extents& first,
                  const Extents& step) {
  const Tensor zeros = scratch.filled(tensor.dtype, joined({tensor.sizes[0], tensor.sizes[1]}, {sizes}),
                                      Value(std::int64_t{0}));
  Tensor inner = zeros;
  inner.sizes = tensor.sizes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    inner.offset += zeros.strides[i + 2] * first[i];
    inner.strides[i + 2] *= step[i];
  }
  if (tensor.numel() != 0) cpu::copy_elements(tensor, inner);
  return zeros;
}

// The windows that a convolution of `input` multiplies, `counts` of them.
Tensor windows_over(Scratch& scratch, const Tensor& input, const Windows& windows, const Extents& counts) {
  const Extents ones(windows.rank(), 1), zeros(windows.rank(), 0);
  Extents padded = behind_channels(input);
  for (std::size_t i = 0; i < padded.size(); ++i) padded[i] += 2 * windows.padding[i];
  const bool is_padded = padded != behind_channels(input);
  const Tensor& source = is_padded ? spread_out(scratch, input, padded, windows.padding, ones) : input;
  return view_windows(source, windows, {zeros, windows.dilation, windows.stride, counts});
}
// The same of the derivative by the input: element i of `sizes` is under place k of the window that
// begins at i + padding - k * dilation. Between the windows lie zeros.
Tensor windows_under(Scratch& scratch, const Tensor& grad, const Windows& windows, const Extents& sizes) {
  Extents first, last, lengths, backwards, ones(windows.rank(), 1);
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    const std::int64_t reach = windows.dilation[i] * (windows.kernel[i] - 1);
    first.push_back(reach);
    last.push_back(reach + windows.padding[i]);
    backwards.push_back(-windows.dilation[i]);
    lengths.push_back(
        reach + std::max(sizes[i] + windows.padding[i], windows.stride[i] * (grad.sizes[i + 2] - 1) + 1));
  }
  const Tensor spaced = spread_out(scratch, grad, lengths, first, windows.stride);
  return view_windows(spaced, windows, {last, backwards, ones, sizes});
}

// Row-major, of three dimensions.
Tensor as_batches(Scratch& scratch, const Tensor& tensor, std::int64_t batches, std::int64_t rows) {
  const Tensor dense = scratch.dense(tensor, tensor.dtype);
  const std::int64_t cells = batches * rows, columns = cells == 0 ? 0 : dense.numel() / cells;
  return dense.view({batches, rows, columns}, {rows * columns, columns, 1}, dense.offset);
}
// The tensor without its first dimension, at index i of it.
Tensor at_first(const Tensor& tensor, std::int64_t i) {
  return tensor.view({tensor.sizes.begin() + 1, tensor.sizes.end()},
                     {tensor.strides.begin() + 1, tensor.strides.end()},
                     tensor.offset + i * tensor.strides[0]);
}
Tensor permuted(const Tensor& tensor, const std::vector<std::size_t>& order) {
  Extents sizes, strides;
  for (const std::size_t d : order) {
    sizes.push_back(tensor.sizes[d]);
    strides.push_back(tensor.strides[d]);
  }
  return tensor.view(std::move(sizes), std::move(strides), tensor.offset);
}
// The first dimension as two, the outer of `groups`.
Tensor in_groups(const Tensor& tensor, std::int64_t groups) {
  Extents sizes = tensor.sizes, strides = tensor.strides;
  sizes[0] /= groups;
  sizes.insert(sizes.begin(), groups);
  strides.insert(strides.begin(), strides[0] * sizes[1]);
  return tensor.view(std::move(sizes), std::move(strides), tensor.offset);
}

struct Convolution {
  Scratch& scratch;
  const MultiplyBatches& multiply;
  const Windows& windows;
  DType computed;
};

// [batch, channels, ..] of the computed dtype: of each window [batch, groups, c, k.., w..] the
// product by weights [groups, channels of a group, c k..].
Tensor multiply_windows(const Convolution& by, const Tensor& weights, const Tensor& windows) {
  const std::int64_t groups = weights.sizes[0], channels = weights.sizes[1], batch = windows.sizes[0];
  const Extents counts(windows.sizes.end() - static_cast<std::ptrdiff_t>(by.windows.rank()),
                       windows.sizes.end());
  const Tensor out = by.scratch.make(by.computed, joined({batch, groups * channels}, {counts}));
  const std::int64_t columns = count_elements(counts);
  if (out.numel() == 0) return out;
  for (std::int64_t b = 0; b < batch; ++b)
    by.multiply(weights, as_batches(by.scratch, at_first(windows, b), groups, weights.sizes[2]),
                out.view({groups, channels, columns}, {channels * columns, columns, 1},
                         out.offset + b * groups * channels * columns));
  return out;
}
// From the windows of `input`.
Tensor gather_windows(const Convolution& by, const Tensor& input, const Tensor& weight,
                      const Extents& counts) {
  const Tensor weights =
      as_batches(by.scratch, weight, by.windows.groups, weight.sizes[0] / by.windows.groups);
  return multiply_windows(by, weights, windows_over(by.scratch, input, by.windows, counts));
}
// To elements of `sizes`, each of which receives what all windows over it hold.
Tensor scatter_windows(const Convolution& by, const Tensor& values, const Tensor& weight,
                       const Extents& sizes) {
  std::vector<std::size_t> order{0, 2, 1};  // groups, channels of the result, of the values
  for (std::size_t i = 0; i < by.windows.rank(); ++i) order.push_back(i + 3);
  const Tensor turned = permuted(in_groups(weight, by.windows.groups), order);
  const Tensor weights = as_batches(by.scratch, turned, by.windows.groups, weight.sizes[1]);
  return multiply_windows(by, weights, windows_under(by.scratch, values, by.windows, sizes));
}
// The derivative by the weight: of each window of `input` the element of `grad` that it made, added
// up over batch and windows.
Tensor pair_windows(const Convolution& by, const Tensor& input, const Tensor& grad) {
  const std::int64_t groups = by.windows.groups, batch = input.sizes[0];
  const std::size_t rank = by.windows.rank();
  const std::int64_t rows = grad.sizes[1] / groups,
                     columns = input.sizes[1] / groups * count_elements(by.windows.kernel);
  std::vector<std::size_t> places{1, 0}, channels{1, 0};
  for (std::size_t i = 0; i < rank; ++i) places.push_back(3 + rank + i);
  for (std::size_t i = 0; i <= rank; ++i) places.push_back(2 + i);
  for (std::size_t i = 0; i < rank; ++i) channels.push_back(2 + i);
  // [groups, batch, windows.., channels of a group, places..] and [groups, channels, batch,
  // windows..].
  const Tensor windows = permuted(windows_over(by.scratch, input, by.windows, behind_channels(grad)), places);
  const Tensor grads = in_groups(permuted(grad, channels), groups);
  const std::int64_t summed = batch * count_elements(behind_channels(grad));
  if (summed == 0) return by.scratch.filled(by.computed, {groups, rows, columns}, Value(std::int64_t{0}));
  const Tensor out = by.scratch.make(by.computed, {groups, rows, columns});
  if (out.numel() != 0)
    by.multiply(as_batches(by.scratch, grads, groups, rows), as_batches(by.scratch, windows, groups, summed),
                out);
  return out;
}

Convolution make_convolution(Scratch& scratch, const MultiplyBatches& multiply, const Windows& windows,
                             DType dtype) {
  return {scratch, multiply, windows, floating_dtype(dtype)};
}

// `values`, row-major in the order of the result's elements, with a number for each channel added.
Tensor store_with_bias(KernelCall& call, Scratch& scratch, const Tensor& values, const Value& bias) {
  const Tensor out = call.make_result(0, call.tensor(0).dtype, values.sizes);
  if (bias.is_none()) {
    cpu::copy_elements(values, out);
    return out;
  }
  const Tensor& shifts = bias.tensor();
  if (shifts.rank() != 1 || shifts.sizes[0] != out.sizes[1])
    throw KernelError("convolution: a bias of other channels");
  Extents sizes(out.rank(), 1), strides(out.rank(), 0);
  sizes[1] = shifts.sizes[0];
  strides[1] = shifts.strides[0];
  scratch.map_into<math::AddScaled>(out, Value(1.0), values, shifts.view(sizes, strides, shifts.offset));
  return out;
}

// The gradient of the bias, result 2: of each channel the sum over batch and windows.
Tensor sum_channels(KernelCall& call, Scratch& scratch, const Tensor& grad) {
  std::vector<bool> is_reduced(grad.rank(), true);
  is_reduced[1] = false;
  const ReducedRows in = reduced_rows(scratch, grad, {is_reduced, false});
  const Tensor out = call.make_result(2, grad.dtype, in.sizes);
  const Rows results = scratch.rows_for(out, out.rank());
  scratch.for_each_block(in.rows, {&results}, [&](const Block& block) {
    block.store(scratch.sum_rows(block.load(in.rows, floating_dtype(grad.dtype))), results);
  });
  return out;
}

}  // namespace

Value convolution(KernelCall& call, const MultiplyBatches& multiply) {
  const Tensor &input = call.tensor(0), &weight = call.tensor(1);
  const Windows windows = read_windows(call, weight, 3);
  check_operands(input, weight, windows);
  Scratch scratch(call);
  const Convolution by = make_convolution(scratch, multiply, windows, input.dtype);
  const Extents extra = numbers_for(call[7], windows.rank());
  Extents sizes;
  for (std::size_t i = 0; i < windows.rank(); ++i) {
    const std::int64_t extent = input.sizes[i + 2];
    sizes.push_back(windows.is_transposed ? (extent - 1) * windows.stride[i] - 2 * windows.padding[i] +
                                                windows.dilation[i] * (windows.kernel[i] - 1) + extra[i] + 1
                                          : count_windows(windows, extent, i));
    if (sizes.back() < 1) throw KernelError("convolution: the windows do not fit");
  }
  return store_with_bias(call, scratch,
                         windows.is_transposed ? scatter_windows(by, input, weight, sizes)
                                               : gather_windows(by, input, weight, sizes),
                         call[2]);
}

Value convolution_backward(KernelCall& call, const MultiplyBatches& multiply) {
  const Tensor &grad = call.tensor(0), &input = call.tensor(1), &weight = call.tensor(2);
  const Windows windows = read_windows(call, weight, 4);
  check_operands(input, weight, windows);
  if (grad.rank() != input.rank() || grad.sizes[0] != input.sizes[0] || grad.dtype != input.dtype)
    throw KernelError("convolution: the gradient does not fit the input");
  const Tensor &windowed = windows.is_transposed ? grad : input, &made = windows.is_transposed ? input : grad;
  if (made.sizes[1] != weight.sizes[0] || windowed.sizes[1] != weight.sizes[1] * windows.groups)
    throw KernelError("convolution: the gradient has other channels");
  for (std::size_t i = 0; i < windows.rank(); ++i)
    if (count_windows(windows, windowed.sizes[i + 2], i) != made.sizes[i + 2])
      throw KernelError("convolution: the gradient has other windows");
  Scratch scratch(call);
  const Convolution by = make_convolution(scratch, multiply, windows, input.dtype);
  const std::vector<Value>& wanted = call[10].items();
  Value of_input, of_weight, of_bias;
  if (wanted.at(0).boolean())
    of_input =
        store_result(call, 0, input.dtype, input.sizes,
                     windows.is_transposed ? gather_windows(by, grad, weight, behind_channels(input))
                                           : scatter_windows(by, grad, weight, behind_channels(input)));
  if (wanted.at(1).boolean())
    of_weight = store_result(call, 1, weight.dtype, weight.sizes, pair_windows(by, windowed, made));
  if (wanted.at(2).boolean()) of_bias = sum_channels(call, scratch, grad);
  return Value::tuple({of_input, of_weight, of_bias});
}

}  // namespace epweave::replay::shared
