#include "ir/types/layout.h"

#include <algorithm>

namespace epweave {
namespace {

// One dimension of a tensor whose shape has no symbols.
struct NumberDim {
  std::int64_t size, stride;
};

std::optional<std::vector<NumberDim>> numbers_of(Facts& facts, Layout layout) {
  std::vector<NumberDim> dims;
  for (std::size_t i = 0; i < layout.sizes.size(); ++i) {
    const auto size = facts.pool().constant(layout.sizes[i]),
               stride = facts.pool().constant(layout.strides[i]);
    if (!size || !stride) return std::nullopt;
    dims.push_back({*size, *stride});
  }
  return dims;
}

// Joins dimensions [first, last] into one, if they lie one inside the other
// (prims._collapse_view_helper).
bool collapse(std::vector<NumberDim>& dims, std::size_t first, std::size_t last) {
  NumberDim joined = dims[last];
  for (std::size_t i = last; i-- > first;) {
    const NumberDim &outer = dims[i], &inner = dims[i + 1];
    if (outer.size != 1 && inner.size != 1 && outer.stride != inner.stride * inner.size) return false;
    if (outer.size != 1) joined.stride = std::min(joined.stride, outer.stride);
    joined.size *= outer.size;
  }
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(first),
             dims.begin() + static_cast<std::ptrdiff_t>(last));
  dims[first] = joined;
  return true;
}

void split(std::vector<NumberDim>& dims, std::size_t dim, std::int64_t outer) {
  const std::int64_t inner = dims[dim].size / outer, stride = dims[dim].stride;
  dims[dim] = {outer, stride * inner};
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(dim) + 1, NumberDim{inner, stride});
}

// torch._refs._reshape_view_helper_core_alg: makes the wanted dimensions left to right, joining and
// splitting.
bool reshape_numbers(std::vector<NumberDim>& dims, std::span<const std::int64_t> shape) {
  for (std::size_t at = 0; at < shape.size(); ++at) {
    if (at >= dims.size()) {
      split(dims, dims.size() - 1, dims.back().size);
      continue;
    }
    if (dims[at].size == shape[at]) continue;
    std::int64_t covered = dims[at].size;
    std::size_t last = at;
    while (covered % shape[at] != 0 && last + 1 < dims.size()) covered *= dims[++last].size;
    if (covered % shape[at] != 0 || !collapse(dims, at, last)) return false;
    if (covered != shape[at]) split(dims, at, shape[at]);
  }
  dims.resize(shape.size());  // what is left has extent 1
  return true;
}

// at::detail::computeStride: each run of memory of the tensor must be filled by whole dimensions of
// the view.
std::optional<Dims> fill_runs(Facts& facts, Layout layout, std::span<const ExprId> sizes) {
  ExprPool& pool = facts.pool();
  Dims strides(sizes.size());
  std::size_t at = sizes.size();  // dimensions from here on have a stride
  ExprId base = layout.strides.back(), filled = pool.number(1);
  for (std::size_t i = layout.sizes.size(); i-- > 0;) {
    filled = pool.mul(filled, layout.sizes[i]);
    const bool joins_next = i > 0 && (is_one(facts, layout.sizes[i - 1]) ||
                                      facts.equal_strides(layout.strides[i - 1], pool.mul(filled, base)));
    if (joins_next) continue;
    ExprId covered = pool.number(1);
    while (at > 0 && (!facts.equal(covered, filled) || is_one(facts, sizes[at - 1]))) {
      if (facts.at_least(covered, pool.add(filled, pool.number(1)))) return std::nullopt;
      --at;
      strides[at] = pool.mul(covered, base);
      covered = pool.mul(covered, sizes[at]);
    }
    if (!facts.equal(covered, filled)) return std::nullopt;
    if (i > 0) {
      base = layout.strides[i - 1];
      filled = pool.number(1);
    }
  }
  if (at != 0) return std::nullopt;
  return strides;
}

std::optional<Dims> view_numbers(Facts& facts, Layout layout, std::vector<NumberDim> dims,
                                 std::span<const ExprId> sizes) {
  std::vector<std::int64_t> shape;
  bool is_empty = false;
  for (ExprId size : sizes) {
    shape.push_back(*facts.pool().constant(size));
    is_empty |= shape.back() == 0;
  }
  if (is_empty) return contiguous_strides(facts, sizes);
  const bool is_flat = shape.size() == 1 || (shape.size() == 2 && dims.size() == 1);
  if (is_flat && is_contiguous(facts, layout)) return contiguous_strides(facts, sizes);
  if (!fill_runs(facts, layout, sizes) || !reshape_numbers(dims, shape)) return std::nullopt;
  Dims strides;
  for (const NumberDim& dim : dims) strides.push_back(facts.pool().number(dim.stride));
  return strides;
}

}  // namespace

std::optional<Dims> view_strides(Facts& facts, Layout layout, std::span<const ExprId> sizes) {
  if (layout.sizes.empty()) return Dims(sizes.size(), facts.pool().number(1));
  if (equal_each(facts, layout.sizes, sizes)) return Dims(layout.strides.begin(), layout.strides.end());
  if (!has_symbol(facts, sizes))
    if (auto dims = numbers_of(facts, layout)) return view_numbers(facts, layout, std::move(*dims), sizes);
  if (is_contiguous(facts, layout)) return contiguous_strides(facts, sizes);
  return fill_runs(facts, layout, sizes);
}

}  // namespace epweave
