#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/few_table.h"
#include "base/interner.h"
#include "base/paged_table.h"
#include "base/short_vector.h"

namespace epweave {
namespace {

using Row = Id<struct RowTag>;

std::string list_of(const PagedTable<Row, int>& table) {
  std::string text;
  for (const int item : table) text += std::to_string(item) + ' ';
  return text;
}

TEST_CASE("a copy of a paged table shares pages until one of the two changes an item of them") {
  PagedTable<Row, int> first;
  for (int i = 0; i < 600; ++i) first.push_back(i);
  PagedTable<Row, int> second = first;
  CHECK(list_of(first) == list_of(second));
  const Row early(3u), late(599u), added(600u);
  CHECK(first.shares(second, early));
  second[early] = -3;
  CHECK_FALSE(first.shares(second, early));
  CHECK(first.shares(second, late));
  CHECK(second.push_back(-600) == added);
  CHECK_FALSE(first.shares(second, late));
  first[late] = -599;
  const PagedTable<Row, int>&one = first, &other = second;
  CHECK(std::vector{one[early], one[late], other[early], other[late], other[added]} ==
        std::vector{3, -599, -3, 599, -600});
  CHECK(first.size() == 600);
  CHECK(second.size() == 601);

  PagedTable<Row, int> moved = std::move(second);
  CHECK(list_of(second).empty());  // NOLINT: a moved table is empty
  CHECK(second.push_back(7) == Row(0u));
  second = std::move(moved);
  CHECK(second.size() == 601);
  CHECK_FALSE(moved.contains(early));  // NOLINT
  PagedTable<Row, int> third = first;
  third = second;
  CHECK(third.push_back(1) == Row(601u));
  CHECK(list_of(third) == list_of(second) + "1 ");
}

TEST_CASE("many texts are interned as each alone would be") {
  // Of all lengths around a word, equal but for one character, more than are asked for at once.
  // Some come twice, some are known before.
  std::vector<std::string> texts;
  for (std::size_t size = 0; size < 20; ++size)
    for (std::size_t other = 0; other <= size; ++other) {
      texts.emplace_back(size, 'a');
      if (other < size) texts.back()[other] = 'b';
    }
  texts.insert(texts.end(), {"aaaa", "", "b"});
  StringTable each, all;
  each.intern("aab"), all.intern("aab");
  std::vector<StringId> ids;
  for (const std::string& text : texts) ids.push_back(each.intern(text));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  CHECK(all.intern(views) == ids);
  CHECK(all.size() == each.size());
  CHECK(all.size() == 20 * 21 / 2);
  for (std::size_t i = 0; i < texts.size(); ++i) CHECK(all[ids[i]] == texts[i]);
  CHECK(all.find("aaaa") == ids[texts.size() - 3]);
  CHECK_FALSE(all.find("ab a").valid());
}

TEST_CASE("a table of few values keeps them in the order in which they were made") {
  FewTable<Row, std::string> table;
  CHECK(table.find(Row(7u)) == nullptr);
  table.at(Row(7u)) = "seven";
  table.at(Row(2u)) += "two";
  table.at(Row(7u)) += "!";
  CHECK(*table.find(Row(7u)) == "seven!");
  CHECK(table.find(Row(3u)) == nullptr);
  std::string all;
  for (const auto& [row, value] : table) all += std::to_string(row.index()) + value + ' ';
  CHECK(all == "7seven! 2two ");
}

TEST_CASE("a short vector is one that is copied, moved and compared, however long it is") {
  using Short = ShortVector<int, 2>;
  const auto text_of = [](const Short& items) {
    std::string text;
    for (const int item : items) text += std::to_string(item) + ' ';
    return text;
  };
  for (const int count : {0, 1, 2, 3, 9}) {
    Short items;
    std::string expected;
    for (int i = 0; i < count; ++i) {
      items.push_back(i);
      expected += std::to_string(i) + ' ';
    }
    Short copy = items, assigned{5, 6, 7};
    assigned = copy;
    const Short moved = std::move(copy);
    CHECK(text_of(items) + text_of(assigned) + text_of(moved) == expected + expected + expected);
    CHECK(copy.empty());  // NOLINT: a moved vector is empty
    copy = Short{1, 2, 3};
    CHECK(text_of(copy) == "1 2 3 ");
    CHECK(items == moved);
  }
  CHECK((Short{1, 2} < Short{1, 2, 0} && Short{1, 2, 9} < Short{1, 3} && !(Short{2} < Short{1, 5, 6})));
}

}  // namespace
}  // namespace epweave
