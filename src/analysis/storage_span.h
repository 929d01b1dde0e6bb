// The elements of its memory that a tensor reaches, where all its extents are numbers, or by those
// that they were when traced.
//
//   f32[2, 2]{4, 1}+2     from 2 to 8, not all of them
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "ir/expr.h"
#include "ir/types/type.h"

namespace epweave {

struct StorageSpan {
  std::int64_t begin = 0, end = 0;  // begin == end: no element
  bool is_dense = false;            // each element between, once
};

// `number_of` an extent, a stride or an offset; none: it is not known.
using NumberOf = std::function<std::optional<std::int64_t>(ExprId)>;
std::optional<StorageSpan> find_storage_span(const TensorType& type, const NumberOf& number_of);
std::optional<StorageSpan> find_storage_span(const ExprPool& exprs, const TensorType& type);

// Whether elements of the two are surely the same, of tensors of one dtype in one memory.
bool share_elements(const StorageSpan& a, const StorageSpan& b);

}  // namespace epweave
