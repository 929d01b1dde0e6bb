#include "analysis/storage_span.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace epweave {
namespace {

// Whether each element of the span is one of the tensor's, once: each stride is as far as the
// dimensions within it reach. Pairs of stride and extent.
bool is_packed(std::vector<std::pair<std::int64_t, std::int64_t>> dims) {
  std::ranges::sort(dims);
  std::int64_t within = 1;
  for (const auto& [stride, extent] : dims) {
    if (extent == 1) continue;
    if (stride != within) return false;
    within *= extent;
  }
  return true;
}

}  // namespace

std::optional<StorageSpan> find_storage_span(const ExprPool& exprs, const TensorType& type) {
  return find_storage_span(type, [&](ExprId expr) { return exprs.constant(expr); });
}

std::optional<StorageSpan> find_storage_span(const TensorType& type, const NumberOf& number_of) {
  if (type.strides.size() != type.sizes.size()) return std::nullopt;
  const auto begin = type.offset ? number_of(type.offset) : std::optional<std::int64_t>(0);
  if (!begin) return std::nullopt;
  std::int64_t last = *begin, count = 1;
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;
  for (std::size_t d = 0; d < type.sizes.size(); ++d) {
    const auto extent = number_of(type.sizes[d]), stride = number_of(type.strides[d]);
    std::int64_t reach = 0;
    if (!extent || !stride || __builtin_mul_overflow(*extent - 1, *stride, &reach) ||
        __builtin_add_overflow(last, reach, &last) || __builtin_mul_overflow(count, *extent, &count))
      return std::nullopt;
    dims.emplace_back(*stride, *extent);
  }
  if (count == 0) return StorageSpan{*begin, *begin, true};
  return StorageSpan{*begin, last + 1, is_packed(std::move(dims))};
}

bool share_elements(const StorageSpan& a, const StorageSpan& b) {
  return a.is_dense && b.is_dense && a.begin < b.end && b.begin < a.end;
}

}  // namespace epweave
