#include "base/parse_number.h"

#include <catch2/catch.hpp>
#include <cstdint>

namespace epweave {
namespace {

TEST_CASE("a number is the whole of its text and fits its type") {
  CHECK(parse_number<std::int64_t>("-12") == -12);
  CHECK(parse_number<std::int64_t>("9223372036854775807") == 9223372036854775807);
  CHECK(parse_number<std::uint32_t>("007") == 7u);
  CHECK(parse_number<double>("1e3") == 1000.0);
  CHECK(parse_number<double>("-0.5") == -0.5);
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1e3", "0x1", "9223372036854775808"})
    CHECK_FALSE(parse_number<std::int64_t>(text));
  CHECK_FALSE(parse_number<std::uint32_t>("-12"));
  CHECK_FALSE(parse_number<std::uint32_t>("4294967296"));
  for (const char* text : {"", ".", "1.5x", "+1", "1e999"}) CHECK_FALSE(parse_number<double>(text));
}

}  // namespace
}  // namespace epweave
