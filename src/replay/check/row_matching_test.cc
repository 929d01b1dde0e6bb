#include "replay/check/row_matching.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

namespace epweave::replay {
namespace {

using Numbers = std::vector<std::vector<float>>;

// Rows with a bound of each element's error.
struct TestRows {
  Numbers numbers, bounds;
};

Tensor make(Memory& memory, const Numbers& rows) {
  const auto width = static_cast<std::int64_t>(rows.front().size());
  const Tensor made = make_tensor(memory, DType::kFloat32, {static_cast<std::int64_t>(rows.size()), width});
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), made.data<float>() + static_cast<std::int64_t>(i) * width);
  return made;
}

Numbers exact(const Numbers& rows) {
  return Numbers(rows.size(), std::vector<float>(rows.front().size(), 0.0F));
}

// Each element of `parts` is a part.
bool match(const Numbers& whole, const std::vector<TestRows>& parts) {
  HostMemory memory;
  std::vector<BoundedValue> values;
  for (const TestRows& part : parts)
    values.push_back({make(memory, part.numbers), make(memory, part.bounds)});
  return match_rows({make(memory, whole), make(memory, exact(whole))}, values, 0).is_within;
}

}  // namespace

TEST_CASE("rows that parts have in orders of their own have a row of the whole each") {
  const Numbers whole = {{0, 1}, {4, 4}, {2, 2}};
  const TestRows first{{{4.125F, 4}}, {{0.25F, 0}}};
  CHECK(match(whole, {first, {{{2, 2}, {0, 1}}, exact({{2, 2}, {0, 1}})}}));
  CHECK_FALSE(match(whole, {first, {{{2, 2}, {2, 2}}, exact({{2, 2}, {0, 1}})}}));  // a row twice
  CHECK_FALSE(match(whole, {{{{4.5F, 4}}, {{0.25F, 0}}}, {{{2, 2}, {0, 1}}, exact({{2, 2}, {0, 1}})}}));
}

TEST_CASE("a row takes the nearest of the rows that its bound allows") {
  // The first row may be either of the whole, the second only the one in front.
  CHECK(match({{0, 0}, {1.2F, 0.2F}}, {{{{1, 0}, {0.1F, 0.95F}}, {{1, 1}, {0.96F, 0.96F}}}}));
}

TEST_CASE("a row gives way to one that can be no other") {
  // The first row is nearest to the first of the whole by the sum of its elements, and may be the
  // other, too.
  CHECK(match({{0.2F, 0.7F}, {1.2F, -0.9F}}, {{{{1, 0}, {0.1F, 1.2F}}, {{1, 1}, {0.55F, 0.55F}}}}));
}

TEST_CASE("rows match exactly if some order of them is within the bounds") {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> number(0, 4), bound(0, 2);
  int matched = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto rows = [&](auto& numbers) {
      Numbers made(5, std::vector<float>(2));
      for (std::vector<float>& row : made)
        for (float& x : row) x = static_cast<float>(numbers(random));
      return made;
    };
    const Numbers whole = rows(number);
    const TestRows parts{rows(number), rows(bound)};
    std::vector<std::size_t> order(whole.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    bool is_possible = false;
    do {
      bool is_within = true;
      for (std::size_t i = 0; i < order.size(); ++i)
        for (std::size_t j = 0; j < 2; ++j)
          is_within &= std::abs(whole[order[i]][j] - parts.numbers[i][j]) <= parts.bounds[i][j];
      is_possible |= is_within;
    } while (std::next_permutation(order.begin(), order.end()));
    CAPTURE(trial);
    CHECK(match(whole, {parts}) == is_possible);
    matched += is_possible ? 1 : 0;
  }
  CHECK(matched > kTrials / 50);
  CHECK(matched < kTrials / 2);
}

}  // namespace epweave::replay
