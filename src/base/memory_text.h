// Amounts of memory, as every report and message says them.
#pragma once

#include <optional>
#include <string>

namespace epweave {

// "96 B", "12.50 KiB", "403.86 GiB". The unit is that of `largest`, where amounts stand in one row.
std::string memory_text(double bytes, std::optional<double> largest = {});

template <class Integer>
std::string memory_text(Integer bytes) {
  return memory_text(static_cast<double>(bytes));
}

// Digits behind the point that show three of a number below 1, of which six places may be shown.
int places_below_one(double size);

}  // namespace epweave
