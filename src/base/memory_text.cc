#include "base/memory_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace epweave {

int places_below_one(double size) {
  return size == 0 ? 0 : std::clamp(2 - static_cast<int>(std::floor(std::log10(size))), 0, 6);
}

std::string memory_text(double bytes, std::optional<double> largest) {
  static constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double scale = largest.value_or(bytes), size = bytes;
  std::size_t unit = 0;
  for (; scale >= 1000 && unit + 1 < kUnits.size(); ++unit) scale /= 1024, size /= 1024;
  const int places = unit == 0 ? 0 : size < 1 ? places_below_one(size) : 2;
  return fmt::format("{:.{}f} {}", size, places, kUnits[unit]);
}

}  // namespace epweave
