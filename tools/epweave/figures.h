// Figures as the text reports write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace epweave::cli {

// Three digits, with the prefix of the unit: "12.5 MB", "805 Mflop".
std::string metric(std::int64_t value, std::string_view unit);

// Symbols whose number cost/extents.h assumes: one line, none for none.
std::string assumed_text(std::size_t symbols);

}  // namespace epweave::cli
