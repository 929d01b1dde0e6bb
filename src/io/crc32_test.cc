#include "io/crc32.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <string>

namespace epweave {
namespace {

std::uint32_t crc32_as_zlib(std::string_view bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(
      crc32(before, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

TEST_CASE("a checksum is zlib's, of any length, from any place, and behind any other bytes") {
  std::string bytes;
  for (std::uint32_t i = 0; bytes.size() < 5000; ++i) bytes += static_cast<char>(i * i * 2654435761U >> 24);
  for (std::size_t size = 0; size < 400; ++size)
    for (const std::size_t begin : {0U, 1U, 7U, 15U}) {
      const std::string_view some = std::string_view(bytes).substr(begin, size);
      for (std::uint32_t before : {0U, 1U, 0xffffffffU, 0x12345678U})
        REQUIRE(crc32_of(some, before) == crc32_as_zlib(some, before));
    }
  CHECK(crc32_of(bytes) == crc32_as_zlib(bytes, 0));
  CHECK(crc32_of(bytes.substr(1000), crc32_of(bytes.substr(0, 1000))) == crc32_of(bytes));
  CHECK(crc32_of("123456789") == 0xcbf43926U);
}

}  // namespace
}  // namespace epweave
