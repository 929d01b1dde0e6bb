// Neighbouring dimensions that lie one behind the other in the memory of all operands, as one.
//
//   sizes [2, 1, 3, 4]   strides [12, 9, 4, 1], [0, 0, 4, 1]     sizes [2, 12]   strides [12, 1], [0, 1]
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace epweave::replay {

// Extents of 1 are left out. `strides` are of each operand, as many as there are `sizes`. Returns
// how many of them are left: those in front.
inline std::size_t merge_dimensions(std::span<std::int64_t> sizes, std::span<std::int64_t* const> strides) {
  std::size_t rank = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    const bool merges = rank > 0 && std::ranges::all_of(strides, [&](const std::int64_t* of) {
                          return of[rank - 1] == of[d] * sizes[d];
                        });
    if (merges) --rank;
    sizes[rank] = merges ? sizes[rank] * sizes[d] : sizes[d];
    for (std::int64_t* of : strides) of[rank] = of[d];
    ++rank;
  }
  return rank;
}

}  // namespace epweave::replay
