// Slices that are copied or written, and rows that are shifted. For every device.
#include <algorithm>

#include "replay/kernels/host/kernels.h"
#include "replay/kernels/ops/parts.h"

namespace epweave::replay::cpu {
namespace {

// self[start:end:step] along `dim`, as Python cuts it; the parameters from `first` on.
Tensor slice_of(const KernelCall& call, const Tensor& self, std::size_t first) {
  const std::size_t dim = existing_dim(call.integer(first), self);
  const std::int64_t extent = self.sizes[dim], step = call.integer(first + 3);
  if (step <= 0) throw KernelError("slice: the step must be positive");
  const auto clip = [&](std::size_t param, std::int64_t otherwise) {
    if (call[param].is_none()) return otherwise;
    const std::int64_t at = call.integer(param);
    return std::clamp<std::int64_t>(at < 0 ? at + extent : at, 0, extent);
  };
  const std::int64_t start = clip(first + 1, 0), end = std::max(start, clip(first + 2, extent));
  Tensor part = self;
  part.sizes[dim] = (end - start + step - 1) / step;
  part.offset += part.sizes[dim] == 0 ? 0 : start * part.strides[dim];
  part.strides[dim] *= step;
  return part;
}
Value slice_copy(KernelCall& call) {
  const Tensor part = slice_of(call, call.tensor(0), 1);
  const Tensor out = call.make_result(0, part.dtype, part.sizes);
  copy_elements(part, out);
  return out;
}
Value slice_scatter(KernelCall& call) {
  const Tensor out = copy_of(call);
  put(call.tensor(1), slice_of(call, out, 2));
  return out;
}
Value select_scatter(KernelCall& call) {
  const Tensor out = copy_of(call);
  const std::size_t dim = existing_dim(call.integer(2), out);
  put(call.tensor(1), row_of(out, dim, checked_row(call.integer(3), out.sizes[dim])));
  return out;
}

// Gradients of what was cut: zeros of input_sizes, in which the gradient goes to the place of the
// cut. torch copies it there, so it broadcasts.
Tensor zeros_of_input(KernelCall& call) {
  const Extents sizes = call[1].integers();
  if (std::ranges::any_of(sizes, [](std::int64_t size) { return size < 0; }))
    throw KernelError("a size is negative");
  const Tensor out = call.make_result(0, call.tensor(0).dtype, sizes);
  fill_elements(out, Value(std::int64_t{0}));
  return out;
}
Value slice_backward(KernelCall& call) {
  const Tensor out = zeros_of_input(call);
  copy_elements(call.tensor(0), slice_of(call, out, 2));
  return out;
}
Value select_backward(KernelCall& call) {
  const Tensor out = zeros_of_input(call);
  const std::size_t dim = existing_dim(call.integer(2), out);
  copy_elements(call.tensor(0), row_of(out, dim, checked_row(call.integer(3), out.sizes[dim])));
  return out;
}

// Rows [first, first + count) along `dim`.
Tensor rows_from(Tensor self, std::size_t dim, std::int64_t first, std::int64_t count) {
  self.offset += count == 0 ? 0 : first * self.strides[dim];
  self.sizes[dim] = count;
  return self;
}
void roll_along(const Tensor& from, const Tensor& to, std::size_t dim, std::int64_t shift) {
  const std::int64_t extent = from.sizes[dim], by = ((shift % extent) + extent) % extent;
  copy_elements(rows_from(from, dim, 0, extent - by), rows_from(to, dim, by, extent - by));
  if (by != 0) copy_elements(rows_from(from, dim, extent - by, by), rows_from(to, dim, 0, by));
}
Tensor flattened(const Tensor& dense) {
  return dense.view({dense.numel()}, {1}, dense.offset);
}

// roll(self, shifts, dims): dims empty rolls the flattened tensor.
Value roll(KernelCall& call) {
  const Extents shifts = call[1].integers(), dims = call[2].integers();
  Tensor from = call.tensor(0);
  const Tensor out = call.make_result(0, from.dtype, from.sizes);
  if (from.numel() == 0) return out;
  if (dims.empty()) {
    if (shifts.size() != 1) throw KernelError("roll: one shift where no dimension is named");
    const Tensor dense = call.make(from.dtype, from.sizes), rolled = call.make(from.dtype, from.sizes);
    copy_elements(from, dense);
    roll_along(flattened(dense), flattened(rolled), 0, shifts[0]);
    copy_elements(rolled, out);
    return out;
  }
  if (dims.size() != shifts.size()) throw KernelError("roll: as many shifts as dimensions");
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const Tensor to = i + 1 == dims.size() ? out : call.make(from.dtype, from.sizes);
    roll_along(from, to, existing_dim(dims[i], from), shifts[i]);
    from = to;
  }
  return out;
}

constexpr KernelRow kRows[] = {
    {"aten.roll.default", roll},
    {"aten.select_backward.default", select_backward},
    {"aten.select_scatter.default", select_scatter},
    {"aten.slice_backward.default", slice_backward},
    {"aten.slice_copy.Tensor", slice_copy},
    {"aten.slice_scatter.default", slice_scatter},
};

}  // namespace

std::span<const KernelRow> slice_rows() {
  return kRows;
}

}  // namespace epweave::replay::cpu
