// The one order in which the CPU and GPU kernels add up n elements.
//
// 16 lanes: lane l starts at +0 and adds elements l, l + 16, l + 32, ... in order. Then lane l gets
// lane l + 8 added (l < 8), then l + 4, l + 2, l + 1; lane 0 is the sum. More than kSumTile
// elements are added up in tiles of so many, the last of which may have fewer; the sums of the
// tiles are added up in this order again.
//
// It depends on n alone: not on how many sums are taken, how they are stored, or who computes them.
// Elements that are zero, also such that are added at the end, change nothing.
#pragma once

#include <cstdint>

#include "replay/kernels/math/portable_math.h"

namespace epweave::math {

inline constexpr std::int64_t kLanes = 16;
// Longer than rows are: sums of whole tensors have threads enough, and are the more exact.
inline constexpr std::int64_t kSumTile = std::int64_t{1} << 18;

// Of no elements there is one tile.
EPWEAVE_HD std::int64_t count_sum_tiles(std::int64_t n) {
  return n <= kSumTile ? 1 : (n + kSumTile - 1) / kSumTile;
}
// Where the tile ends that begins at element `first` of n.
EPWEAVE_HD std::int64_t end_of_sum_tile(std::int64_t first, std::int64_t n) {
  return n - first < kSumTile ? n : first + kSumTile;
}

// Overwrites the lanes.
template <class C>
EPWEAVE_HD C add_lanes(C* lanes) {
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t l = 0; l < half; ++l) lanes[l] = lanes[l] + lanes[l + half];
  return lanes[0];
}

}  // namespace epweave::math
