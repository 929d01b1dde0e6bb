#include "replay/values/merge_dimensions.h"

#include <catch2/catch.hpp>
#include <vector>

namespace epweave::replay {
namespace {

using DimensionSizes = std::vector<std::int64_t>;

struct Merged {
  DimensionSizes sizes;
  std::vector<DimensionSizes> strides;
  friend bool operator==(const Merged&, const Merged&) = default;
};

Merged merge(DimensionSizes sizes, std::vector<DimensionSizes> strides) {
  std::vector<std::int64_t*> of;
  for (DimensionSizes& each : strides) of.push_back(each.data());
  const std::size_t rank = merge_dimensions(sizes, of);
  sizes.resize(rank);
  for (DimensionSizes& each : strides) each.resize(rank);
  return {sizes, strides};
}

TEST_CASE("dimensions are merged where all operands lie so, and extents of 1 are left out") {
  CHECK(merge({2, 1, 3, 4}, {{12, 9, 4, 1}}) == Merged{{24}, {{1}}});
  CHECK(merge({2, 1, 3, 4}, {{12, 9, 4, 1}, {0, 0, 4, 1}}) == Merged{{2, 12}, {{12, 1}, {0, 1}}});
  CHECK(merge({2, 3, 4}, {{12, 4, 1}, {0, 0, 0}}) == Merged{{24}, {{1}, {0}}});
  CHECK(merge({2, 3}, {{1, 2}}) == Merged{{2, 3}, {{1, 2}}});
  CHECK(merge({2, 3, 4}, {{24, 8, 2}}) == Merged{{24}, {{2}}});
  CHECK(merge({2, 3, 4}, {{16, 4, 1}}) == Merged{{2, 12}, {{16, 1}}});
}

TEST_CASE("nothing is left of one element") {
  CHECK(merge({}, {{}}) == Merged{{}, {{}}});
  CHECK(merge({1, 1}, {{5, 7}, {0, 0}}) == Merged{{}, {{}, {}}});
  CHECK(merge({3, 2}, {}) == Merged{{6}, {}});
}

TEST_CASE("an extent of 0 stays one") {
  CHECK(merge({2, 0, 4}, {{4, 4, 1}}) == Merged{{2, 0}, {{4, 1}}});
}

}  // namespace
}  // namespace epweave::replay
