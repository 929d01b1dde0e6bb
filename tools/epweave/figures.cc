#include "figures.h"

#include <fmt/format.h>

#include <cmath>

#include "base/counted.h"
#include "base/memory_text.h"

namespace epweave::cli {

std::string metric(std::int64_t number, std::string_view unit, std::optional<std::int64_t> largest) {
  static constexpr std::string_view kPrefixes = " kMGTPE";
  auto value = static_cast<double>(number), scale = static_cast<double>(largest.value_or(number));
  if (unit == "B") return memory_text(value, scale);
  std::size_t prefix = 0;
  for (; scale >= 999.5 && prefix + 1 < kPrefixes.size(); ++prefix) scale /= 1000, value /= 1000;
  if (prefix == 0) return fmt::format("{:.0f} {}", value, unit);
  return fmt::format("{:.{}f} {}{}", value,
                     value < 9.995   ? 2
                     : value < 99.95 ? 1
                                     : 0,
                     kPrefixes[prefix], unit);
}

double milliseconds(double seconds) {
  return std::round(seconds * 1e9) / 1e6 + 0.0;
}

double rounded_share(double share) {
  return std::round(share * 1e9) / 1e9 + 0.0;
}

std::string assumed_text(std::size_t symbols) {
  if (symbols == 0) return "";
  return fmt::format("{} without a number: rows that experts get are taken to be balanced\n",
                     counted(symbols, "symbol"));
}

}  // namespace epweave::cli
