// The one order in which the CPU and GPU kernels add up n elements.
//
// 16 lanes: lane l starts at +0 and adds elements l, l + 16, l + 32, ... in order. Then lane l gets lane l +
// 8 added (l < 8), then l + 4, l + 2, l + 1; lane 0 is the sum. It depends on n alone: not on how many sums
// are taken, how they are stored, or who computes them. Zeros added at the end, or anywhere, change nothing.
#pragma once

#include <cstdint>

#include "replay/block_cache.h"

namespace epweave::replay::cpu {

inline constexpr std::int64_t kLanes = 16;

template <class C>
C ordered_sum(const C* x, std::int64_t n) {
  C lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] = lanes[l] + x[i + l];
  for (std::int64_t l = 0; i + l < n; ++l) lanes[l] = lanes[l] + x[i + l];
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t l = 0; l < half; ++l) lanes[l] = lanes[l] + lanes[l + half];
  return lanes[0];
}

// The sums of the columns of a dense matrix: out[j] = ordered_sum of column j.
template <class C>
void ordered_column_sums(const C* x, std::int64_t rows, std::int64_t columns, C* out) {
  Buffer<C> lanes(static_cast<std::size_t>(kLanes * columns), C(0));
  C* lane = lanes.data();
  for (std::int64_t i = 0; i < rows; ++i) {
    C* to = lane + i % kLanes * columns;
    const C* from = x + i * columns;
    for (std::int64_t j = 0; j < columns; ++j) to[j] = to[j] + from[j];
  }
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t j = 0; j < half * columns; ++j) lane[j] = lane[j] + lane[j + half * columns];
  for (std::int64_t j = 0; j < columns; ++j) out[j] = lane[j];
}

}  // namespace epweave::replay::cpu
