// Layouts of tensors as PyTorch computes them, on extents that may be symbolic.
//
// Questions about symbolic extents are answered as PyTorch's guard_or_false does: yes only where
// the facts say so.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/facts.h"
#include "ir/types/type.h"

namespace epweave {

using Dims = std::vector<ExprId>;

// Sizes and strides of one operand.
struct Layout {
  std::span<const ExprId> sizes;
  std::span<const ExprId> strides;
};

inline Layout layout_of(const TensorType& tensor) {
  return {tensor.sizes, tensor.strides};
}

bool equal_each(Facts& facts, std::span<const ExprId> a, std::span<const ExprId> b);
bool has_symbol(Facts& facts, std::span<const ExprId> extents);
bool is_one(Facts& facts, ExprId extent);
bool is_zero(Facts& facts, ExprId extent);

ExprId product(Facts& facts, std::span<const ExprId> extents);
ExprId sum(Facts& facts, std::span<const ExprId> extents);
// ceil(a / b) for b > 0.
ExprId ceil_div(Facts& facts, ExprId a, std::int64_t b);

// Row-major. An extent of 0 counts as 1: Max(1, u) where u may be 0.
Dims contiguous_strides(Facts& facts, std::span<const ExprId> sizes);
// Contiguous in the order `fill` lists the dimensions, innermost first.
Dims filled_strides(Facts& facts, std::span<const ExprId> sizes, std::span<const std::size_t> fill);

// Strides of dimensions of extent 1 do not matter.
bool is_contiguous(Facts& facts, Layout layout);
// Whether some order of the dimensions is contiguous.
bool is_dense(Facts& facts, Layout layout);
// What empty_like gives: the same strides if dense, else dense in the order of the strides.
Dims preserved_strides(Facts& facts, Layout layout);

// The strides of an elementwise op's result of shape `sizes`, operands broadcast to it
// (TensorIterator; torch._prims_common.compute_elementwise_output_strides).
Dims elementwise_strides(Facts& facts, std::span<const ExprId> sizes, std::span<const Layout> operands);

// Strides of the operand seen with the broadcast shape `sizes`: 0 along broadcast dimensions.
Dims broadcast_strides(Facts& facts, std::span<const ExprId> sizes, Layout operand);

// Strides of a view of `layout` with shape `sizes`, none if it takes a copy. Shapes without symbols
// and others follow different rules for dimensions of extent 1, as in FakeTensor's _view_meta.
std::optional<Dims> view_strides(Facts& facts, Layout layout, std::span<const ExprId> sizes);

// Dimensions sorted by stride, innermost first. Equal strides, of dimensions of extent 1, go by
// position.
enum class Ties { kFirstInside, kLastInside };
std::vector<std::size_t> fill_order(Facts& facts, std::span<const ExprId> strides, Ties ties);

}  // namespace epweave
