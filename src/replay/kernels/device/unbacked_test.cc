#include "replay/kernels/device/unbacked.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <utility>
#include <vector>

#include "replay/kernels/device/device_api.h"

namespace epweave::replay::device {
namespace {

// The pool knows its blocks by their addresses: two at one place are given back twice.
TEST_CASE("memory that is nowhere does not overlap, whatever is asked for first") {
  const auto device = make_unbacked_device();
  std::vector<std::pair<std::uintptr_t, std::size_t>> pieces;
  for (const std::size_t bytes : {1UL << 20, 512UL, 1UL, 1UL << 16, 512UL}) {
    void* data = nullptr;
    REQUIRE(device->allocate(bytes, &data) == nullptr);
    pieces.emplace_back(reinterpret_cast<std::uintptr_t>(data), bytes);
  }
  std::ranges::sort(pieces);
  for (std::size_t i = 1; i < pieces.size(); ++i)
    CHECK(pieces[i - 1].first + pieces[i - 1].second <= pieces[i].first);
}

}  // namespace
}  // namespace epweave::replay::device
