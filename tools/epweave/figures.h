// Figures as the text reports write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace epweave::cli {

// Three digits, with the prefix of the unit: "805 Mflop"; of bytes as base/memory_text.h says them:
// "12.50 MiB". The prefix is that of `largest`, where figures stand in one row.
std::string metric(std::int64_t value, std::string_view unit, std::optional<std::int64_t> largest = {});

// Of reports: to the nanosecond, and shares to 1e-9. What is behind that is rounding of sums.
double milliseconds(double seconds);
double rounded_share(double share);

// Symbols whose number cost/extents.h assumes: one line, none for none.
std::string assumed_text(std::size_t symbols);

}  // namespace epweave::cli
