// The one order in which the CPU and GPU kernels add up n elements.
//
// 16 lanes: lane l starts at +0 and adds elements l, l + 16, l + 32, ... in order. Then lane l gets
// lane l + 8 added (l < 8), then l + 4, l + 2, l + 1; lane 0 is the sum. It depends on n alone: not
// on how many sums are taken, how they are stored, or who computes them. Zeros added at the end, or
// anywhere, change nothing.
#pragma once

#include <cstdint>

#include "replay/kernels/math/portable_math.h"

namespace epweave::math {

inline constexpr std::int64_t kLanes = 16;

// Overwrites the lanes.
template <class C>
EPWEAVE_HD C add_lanes(C* lanes) {
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t l = 0; l < half; ++l) lanes[l] = lanes[l] + lanes[l + half];
  return lanes[0];
}

}  // namespace epweave::math
