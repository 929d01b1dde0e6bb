// The dimension that a number names: negative ones count from the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace epweave {

// None where there is no such dimension.
inline std::optional<std::size_t> find_dimension(std::int64_t dim, std::size_t rank) {
  const auto count = static_cast<std::int64_t>(rank);
  if (dim < -count || dim >= count) return std::nullopt;
  return static_cast<std::size_t>(dim < 0 ? dim + count : dim);
}

}  // namespace epweave
