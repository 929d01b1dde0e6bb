// A number that is the whole of a text, and fits its type; as C++ writes numbers, without `+` and
// without blanks.
//
//   parse_number<std::int64_t>("-12")      -12
//   parse_number<std::uint32_t>("-12")     none, as of "", "12 " and "1e3"
//   parse_number<double>("1e3")            1000
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace epweave {

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const std::from_chars_result read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc() && read.ptr == end ? std::optional(number) : std::nullopt;
}

}  // namespace epweave
