// What self[indices] says, for every device that computes it: how the indices are laid over self,
// and what is left of it.
//
//   self [8, 5, 6], indices (None, i [4], j [3, 1])  ->  positions [3, 4] in dimension 1, blocks [8], result [8, 3, 4]
//   self [8, 5, 6], indices (i [4], None, j [4])     ->  positions [4] in front,          blocks [5], result [4, 5]
//
// A bool mask stands for the indices of its true elements, an index for each of its dimensions.
#pragma once

#include <vector>

#include "replay/kernels/host/elements.h"

namespace epweave::replay::cpu {

struct IndexCall {
  std::vector<Value> indices;          // of the first dimensions of self; None: not indexed
  Extents common;                      // that the indices broadcast to
  std::size_t position = 0;            // of these dimensions in `sizes`
  Extents block_sizes, block_strides;  // of the dimensions that are not indexed
  Extents sizes;                       // of self[indices]
};
// The indices have no masks. Throws KernelError if there are more than dimensions.
IndexCall read_indices(const Tensor& self, std::vector<Value> indices);

inline bool is_mask(const Value& index) {
  return !index.is_none() && index.tensor().dtype == DType::kBool;
}
// The indices of the true elements along each dimension. The mask is in host memory.
std::vector<Buffer<std::int64_t>> find_true(const Tensor& mask);

// A tensor of `call.sizes` as [positions..., block...].
Tensor index_first(const IndexCall& call, Tensor tensor);

// What indices reach beyond is not read or written: each throws KernelError, as torch does.
//
// An index of gather or scatter has the tensor's dimensions, and but for `dim` no more elements
// along each.
void check_index_fits(const Tensor& tensor, const Tensor& index, std::size_t dim);
// The source has a row of the target's other sizes for each of `count` indices along `dim`.
void check_source_rows(const Tensor& target, std::size_t dim, std::int64_t count, const Tensor& source);
// The gradient has a row, its last dimension, for each of `count` indices.
void check_gradient_rows(const Tensor& grad, std::int64_t count);

// Calls visit(position, offset of the block in `tensor`) for each position of the first dimensions,
// which are the index.
template <class Visit>
void for_each_position(const Tensor& tensor, std::size_t index_rank, const Visit& visit) {
  const std::int64_t count = count_elements(std::span(tensor.sizes).first(index_rank));
  Extents at(index_rank, 0);
  std::int64_t offset = tensor.offset;
  for (std::int64_t i = 0; i < count; ++i) {
    visit(static_cast<std::size_t>(i), offset);
    for (std::size_t d = index_rank; d-- > 0;) {
      offset += tensor.strides[d];
      if (++at[d] < tensor.sizes[d]) break;
      offset -= tensor.strides[d] * tensor.sizes[d];
      at[d] = 0;
    }
  }
}

// The block there: the other dimensions.
inline Tensor block_at(const Tensor& tensor, std::size_t index_rank, std::int64_t offset) {
  const auto skip = static_cast<std::ptrdiff_t>(index_rank);
  return {tensor.dtype, Extents(tensor.sizes.begin() + skip, tensor.sizes.end()),
          Extents(tensor.strides.begin() + skip, tensor.strides.end()), offset, tensor.storage};
}

}  // namespace epweave::replay::cpu
