#include "base/id.h"

#include <catch2/catch.hpp>
#include <string>

namespace epweave {
namespace {

using Place = Id<struct PlaceTag>;

TEST_CASE("a small value of a side table is read by value") {
  STATIC_REQUIRE(std::is_same_v<decltype(std::declval<const SideTable<Place, Place>&>()[Place()]), Place>);
  STATIC_REQUIRE(std::is_same_v<decltype(std::declval<const SideTable<Place, std::string>&>()[Place()]),
                                const std::string&>);
}

TEST_CASE("a value of a side table is set from another one where the table grows") {
  SideTable<Place, Place> table;
  table.at(Place(0u)) = Place(7u);
  for (std::uint32_t i = 1; i < 5000; ++i) table.at(Place(i)) = table[Place(i - 1)];
  int right = 0;
  for (std::uint32_t i = 0; i < 5000; ++i) right += table[Place(i)] == Place(7u) ? 1 : 0;
  CHECK(right == 5000);
  CHECK(table[Place(5000u)] == Place());
  CHECK(table.size() == 5000);
}

}  // namespace
}  // namespace epweave
