// Hashes of tensors, so that runs can be compared without their tensors.
//
// 64 bits over elements' bytes in row-major order, without strides. All NaNs of a dtype are one
// value. A hash tells values apart by accident, not against somebody who looks for a collision.
//
// What is hashed is seen as rows of bytes: those of all elements with one index along a dimension,
// or one row of the whole tensor. kernels/math/hash.h says what the hash of a row is; the rows'
// chains are numbered through, and added up. A sum has no order, so a device makes the same one
// with many threads (kernels/tasks/hash_task.h); finish_hash() and finish_slice() make the hash of
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "replay/kernels/math/hash.h"
#include "replay/values/tensor.h"

namespace epweave::replay {

// Over dtype and sizes, too.
std::uint64_t hash_tensor(const Tensor& tensor);
// The same for each index along a dimension, over the elements with that index alone. The hashes of
// a concatenation along `dim` are the parts' hashes one after the other.
std::vector<std::uint64_t> hash_slices(const Tensor& tensor, std::size_t dim);

// In row-major order a tensor is [outer, count] rows of `inner` bytes; `count` hashes are made, of
// `outer` rows each.
struct HashedRows {
  std::int64_t outer = 1, count = 1, inner = 0;
};
HashedRows rows_of(DType dtype, const Extents& sizes);
HashedRows rows_of_slices(DType dtype, const Extents& sizes, std::size_t dim);
// Of dtypes without a sign bit, or whose NaNs are many values: none.
math::FloatsInWord floats_of(DType dtype);
std::uint64_t finish_hash(DType dtype, const Extents& sizes, std::uint64_t sum);
std::uint64_t finish_slice(const HashedRows& rows, std::uint64_t sum);

}  // namespace epweave::replay
