// Sums on the CPU, in the order of math/sum_order.h.
#pragma once

#include <cstdint>

#include "replay/kernels/math/sum_order.h"
#include "replay/values/block_cache.h"

namespace epweave::replay::cpu {

using math::kLanes;

template <class C>
C ordered_sum(const C* x, std::int64_t n) {
  if (n > math::kSumTile) {
    Buffer<C> sums;
    for (std::int64_t first = 0; first < n; first += math::kSumTile)
      sums.push_back(ordered_sum(x + first, math::end_of_sum_tile(first, n) - first));
    return ordered_sum(sums.data(), static_cast<std::int64_t>(sums.size()));
  }
  C lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] = lanes[l] + x[i + l];
  for (std::int64_t l = 0; i + l < n; ++l) lanes[l] = lanes[l] + x[i + l];
  return math::add_lanes(lanes);
}

// The sums of the columns of a dense matrix: out[j] = ordered_sum of column j.
template <class C>
void ordered_column_sums(const C* x, std::int64_t rows, std::int64_t columns, C* out) {
  if (rows > math::kSumTile) {
    const std::int64_t tiles = math::count_sum_tiles(rows);
    Buffer<C> sums(static_cast<std::size_t>(tiles * columns));
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t first = t * math::kSumTile;
      ordered_column_sums(x + first * columns, math::end_of_sum_tile(first, rows) - first, columns,
                          sums.data() + t * columns);
    }
    return ordered_column_sums(sums.data(), tiles, columns, out);
  }
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
