// Counts in messages.
//
//   counted(1, "node")      1 node
//   counted(2, "node")      2 nodes
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace epweave {

inline std::string counted(std::uint64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

// The verb behind it.
inline std::string_view is_or_are(std::uint64_t n) {
  return n == 1 ? "is" : "are";
}

}  // namespace epweave
