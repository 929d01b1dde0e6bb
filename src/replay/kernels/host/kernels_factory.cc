// Ops that make tensors from nothing: empty, zeros, full, arange.
//
// empty is left uninitialised: what is in it shows as poison where the executor poisons memory.
#include <algorithm>
#include <cmath>

#include "replay/kernels/host/elements.h"
#include "replay/kernels/host/kernels.h"
#include "replay/kernels/shared/queue.h"

namespace epweave::replay::cpu {
namespace {

// The `dtype` argument, else the recorded dtype, else `otherwise`.
DType asked_dtype(const KernelCall& call, std::size_t param, DType otherwise) {
  return call[param].is<DType>() ? call[param].as<DType>() : call.result_dtype(0, otherwise);
}

Tensor filled(KernelCall& call, DType dtype, Extents sizes, const Value& number) {
  Tensor out = call.make_result(0, dtype, std::move(sizes));
  fill_elements(out, number);
  return out;
}

const Value& zero() {
  static const Value value(std::int64_t{0});
  return value;
}
const Value& one() {
  static const Value value(std::int64_t{1});
  return value;
}

Value empty(KernelCall& call) {
  return call.make_result(0, asked_dtype(call, 1, DType::kFloat32), call[0].integers());
}
Value empty_strided(KernelCall& call) {
  return make_tensor(call.memory(), asked_dtype(call, 2, DType::kFloat32), call[0].integers(),
                     call[1].integers());
}
// Strides by the order of the dimensions in memory, which the second argument lists from the
// outermost on.
Value empty_permuted(KernelCall& call) {
  const Extents sizes = call[0].integers(), layout = call[1].integers();
  if (layout.size() != sizes.size()) throw KernelError("empty_permuted: a layout of other dimensions");
  Extents strides(sizes.size(), 0);
  std::int64_t stride = 1;
  for (std::size_t i = layout.size(); i-- > 0;) {
    const std::size_t dim = checked_dim(layout[i], sizes.size());
    if (strides[dim] != 0) throw KernelError("empty_permuted: a layout names a dimension twice");
    strides[dim] = stride;
    stride *= std::max<std::int64_t>(sizes[dim], 1);
  }
  return make_tensor(call.memory(), asked_dtype(call, 2, DType::kFloat32), sizes, strides);
}
Value zeros(KernelCall& call) {
  return filled(call, asked_dtype(call, 1, DType::kFloat32), call[0].integers(), zero());
}
Value ones(KernelCall& call) {
  return filled(call, asked_dtype(call, 1, DType::kFloat32), call[0].integers(), one());
}
// The dtype of a number where nothing else says one.
DType number_dtype(const Value& number) {
  return number.is<double>() ? DType::kFloat32 : number.is<bool>() ? DType::kBool : DType::kInt64;
}
Value full(KernelCall& call) {
  return filled(call, asked_dtype(call, 2, number_dtype(call[1])), call[0].integers(), call[1]);
}

Value empty_like(KernelCall& call) {
  return call.make_result(0, asked_dtype(call, 1, call.tensor(0).dtype), call.tensor(0).sizes);
}
Value zeros_like(KernelCall& call) {
  return filled(call, asked_dtype(call, 1, call.tensor(0).dtype), call.tensor(0).sizes, zero());
}
Value ones_like(KernelCall& call) {
  return filled(call, asked_dtype(call, 1, call.tensor(0).dtype), call.tensor(0).sizes, one());
}
Value full_like(KernelCall& call) {
  return filled(call, asked_dtype(call, 2, call.tensor(0).dtype), call.tensor(0).sizes, call[1]);
}

Value new_empty(KernelCall& call) {
  return call.make_result(0, asked_dtype(call, 2, call.tensor(0).dtype), call[1].integers());
}
Value new_empty_strided(KernelCall& call) {
  return make_tensor(call.memory(), asked_dtype(call, 3, call.tensor(0).dtype), call[1].integers(),
                     call[2].integers());
}
Value new_zeros(KernelCall& call) {
  return filled(call, asked_dtype(call, 2, call.tensor(0).dtype), call[1].integers(), zero());
}
Value new_ones(KernelCall& call) {
  return filled(call, asked_dtype(call, 2, call.tensor(0).dtype), call[1].integers(), one());
}
Value new_full(KernelCall& call) {
  return filled(call, asked_dtype(call, 3, call.tensor(0).dtype), call[1].integers(), call[2]);
}

Value scalar_tensor(KernelCall& call) {
  return filled(call, asked_dtype(call, 1, number_dtype(call[0])), {}, call[0]);
}

// start + i * step.
Tensor progression(KernelCall& call, DType dtype, const Value& start, const Value& end, const Value& step) {
  if (step.real() == 0) throw KernelError("arange: the step must not be zero");
  const bool is_whole = !start.is<double>() && !end.is<double>() && !step.is<double>();
  std::int64_t count = 0;
  if (is_whole) {
    const std::int64_t span = end.integer() - start.integer(), by = step.integer();
    count = by > 0 ? (span + by - 1) / by : (span + by + 1) / by;
  } else {
    count = static_cast<std::int64_t>(std::ceil((end.real() - start.real()) / step.real()));
  }
  if (count < 0) throw KernelError("arange: the bounds contradict the step's sign");
  Tensor out = call.make_result(0, dtype, {count});
  if (Queue* queue = out.storage->queue(); queue != nullptr) {
    if (is_whole)
      queue->progress(out, start, step);
    else
      queue->progress(out, start.real(), step.real());
    return out;
  }
  if (is_whole) {
    Buffer<std::int64_t> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      values[static_cast<std::size_t>(i)] = start.integer() + i * step.integer();
    store_dense(values, out);
  } else {
    Buffer<double> values(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      values[static_cast<std::size_t>(i)] = start.real() + static_cast<double>(i) * step.real();
    store_dense(values, out);
  }
  return out;
}
DType arange_dtype(const KernelCall& call, std::size_t param, std::size_t numbers) {
  DType otherwise = DType::kInt64;
  for (std::size_t i = 0; i < numbers; ++i)
    if (call[i].is<double>()) otherwise = DType::kFloat32;
  return asked_dtype(call, param, otherwise);
}
Value arange(KernelCall& call) {
  return progression(call, arange_dtype(call, 1, 1), zero(), call[0], one());
}
Value arange_start(KernelCall& call) {
  return progression(call, arange_dtype(call, 2, 2), call[0], call[1], one());
}
Value arange_step(KernelCall& call) {
  return progression(call, arange_dtype(call, 3, 3), call[0], call[1], call[2]);
}

Value eye_of(KernelCall& call, std::int64_t rows, std::int64_t columns, std::size_t dtype_param) {
  Tensor out = filled(call, asked_dtype(call, dtype_param, DType::kFloat32), {rows, columns}, zero());
  Tensor diagonal = out.view({std::min(rows, columns)}, {out.strides[0] + out.strides[1]}, out.offset);
  fill_elements(diagonal, one());
  return out;
}
Value eye(KernelCall& call) {
  return eye_of(call, call.integer(0), call.integer(0), 1);
}
Value eye_m(KernelCall& call) {
  return eye_of(call, call.integer(0), call.integer(1), 2);
}

constexpr KernelRow kRows[] = {
    {"aten.arange.default", arange},
    {"aten.arange.start", arange_start},
    {"aten.arange.start_step", arange_step},
    {"aten.empty.memory_format", empty},
    {"aten.empty_like.default", empty_like},
    {"aten.empty_permuted.default", empty_permuted},
    {"aten.empty_strided.default", empty_strided},
    {"aten.eye.default", eye},
    {"aten.eye.m", eye_m},
    {"aten.full.default", full},
    {"aten.full_like.default", full_like},
    {"aten.new_empty.default", new_empty},
    {"aten.new_empty_strided.default", new_empty_strided},
    {"aten.new_full.default", new_full},
    {"aten.new_ones.default", new_ones},
    {"aten.new_zeros.default", new_zeros},
    {"aten.ones.default", ones},
    {"aten.ones_like.default", ones_like},
    {"aten.scalar_tensor.default", scalar_tensor},
    {"aten.zeros.default", zeros},
    {"aten.zeros_like.default", zeros_like},
};

}  // namespace

std::span<const KernelRow> factory_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
