#include "base/memory_text.h"

#include <catch2/catch.hpp>

namespace epweave {

TEST_CASE("memory is said in the unit that fits it") {
  CHECK(memory_text(0) == "0 B");
  CHECK(memory_text(999) == "999 B");
  CHECK(memory_text(1000) == "0.977 KiB");
  CHECK(memory_text(1536) == "1.50 KiB");
  CHECK(memory_text(std::int64_t{52} << 20) == "52.00 MiB");
  CHECK(memory_text(413550.91 * (1 << 20)) == "403.86 GiB");
  CHECK(memory_text(std::int64_t{51407} << 30) == "50.20 TiB");
}

TEST_CASE("amounts of one row have the unit of the largest") {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  CHECK(memory_text(206.38 * kMiB, 403.86 * kGiB) == "0.202 GiB");
  CHECK(memory_text(0, kGiB) == "0 GiB");
}

}  // namespace epweave
