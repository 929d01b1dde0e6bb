#include "replay/kernels/ops/index_call.h"

#include <algorithm>
#include <string>

namespace epweave::replay::cpu {

IndexCall read_indices(const Tensor& self, std::vector<Value> indices) {
  if (indices.size() > self.rank()) throw KernelError("more indices than dimensions");
  IndexCall call;
  call.indices = std::move(indices);
  std::vector<const Tensor*> tensors;
  std::size_t first = self.rank(), last = 0;
  for (std::size_t d = 0; d < call.indices.size(); ++d) {
    if (call.indices[d].is_none()) continue;
    tensors.push_back(&call.indices[d].tensor());
    first = std::min(first, d);
    last = d;
  }
  call.common = broadcast_sizes(tensors);
  // Adjacent indices leave their dimensions in place; others come first.
  call.position = tensors.size() == last - first + 1 ? first : 0;
  for (std::size_t d = 0; d < self.rank(); ++d) {
    if (d < call.indices.size() && !call.indices[d].is_none()) continue;
    call.block_sizes.push_back(self.sizes[d]);
    call.block_strides.push_back(self.strides[d]);
  }
  call.sizes = call.block_sizes;
  call.sizes.insert(call.sizes.begin() + static_cast<std::ptrdiff_t>(call.position), call.common.begin(),
                    call.common.end());
  return call;
}

std::vector<Buffer<std::int64_t>> find_true(const Tensor& mask) {
  const Buffer<std::int64_t> flags = dense<std::int64_t>(mask);
  std::vector<Buffer<std::int64_t>> found(mask.rank());
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == 0) continue;
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t d = mask.rank(); d-- > 0; rest /= mask.sizes[d])
      found[d].push_back(rest % mask.sizes[d]);
  }
  return found;
}

void check_index_fits(const Tensor& tensor, const Tensor& index, std::size_t dim) {
  if (index.rank() != tensor.rank())
    throw KernelError("the index has another number of dimensions than the tensor");
  if (index.numel() == 0) return;
  for (std::size_t d = 0; d < index.rank(); ++d)
    if (d != dim && index.sizes[d] > tensor.sizes[d])
      throw KernelError("the index is larger than the tensor along dimension " + std::to_string(d));
}

void check_source_rows(const Tensor& target, std::size_t dim, std::int64_t count, const Tensor& source) {
  Extents sizes = target.sizes;
  sizes.at(dim) = count;
  if (source.sizes != sizes)
    throw KernelError("the source has not a row of the target's sizes for each index");
}

void check_gradient_rows(const Tensor& grad, std::int64_t count) {
  if (grad.rank() == 0 || grad.numel() != count * grad.sizes.back())
    throw KernelError("the gradient has not a row for each index");
}

Tensor index_first(const IndexCall& call, Tensor tensor) {
  const auto from = static_cast<std::ptrdiff_t>(call.position);
  const auto count = static_cast<std::ptrdiff_t>(call.common.size());
  std::rotate(tensor.sizes.begin(), tensor.sizes.begin() + from, tensor.sizes.begin() + from + count);
  std::rotate(tensor.strides.begin(), tensor.strides.begin() + from, tensor.strides.begin() + from + count);
  return tensor;
}

}  // namespace epweave::replay::cpu
