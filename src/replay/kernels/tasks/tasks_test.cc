// What tasks do that no result of a call shows: the numbers of the faults that they report, steps
// of which others undo what they do wrong, and blocks that are looked at for nothing.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "replay/kernels/tasks/index_tasks.h"
#include "replay/kernels/tasks/rearrange_tasks.h"
#include "replay/kernels/tasks/row_tasks.h"

namespace epweave::replay::tasks {
namespace {

struct Reported {
  FaultCode code;
  std::int64_t value = 0, limit = 0;
  friend bool operator==(const Reported&, const Reported&) = default;
};
constexpr Reported kNothing{FaultCode::kNone};

// What the task reports of one index.
template <class Task>
Reported report_of(Task task, std::int64_t index = 0) {
  Fault fault{};
  task.sink = {&fault, 7};
  task.run(index);
  if (fault.code != 0) CHECK(fault.site == 7);
  return {static_cast<FaultCode>(fault.code), fault.value, fault.limit};
}

Reported resolve(std::int64_t index, std::int64_t size, bool allows_negative) {
  std::int64_t offset = 0;
  ResolveIndexTask task{};
  task.shape = {1, true, {1}};
  task.index = {&index, {1}, Stored::kInt64};
  task.offsets = &offset;
  task.size = size, task.stride = 1, task.allows_negative = allows_negative;
  return report_of(task);
}

Reported check_counts(std::vector<std::int64_t> ends, std::int64_t total) {
  return report_of(CheckCountsTask{ends.data(), static_cast<std::int64_t>(ends.size()), total, {}});
}

Reported check_offsets(std::vector<std::int64_t> ends, std::int64_t limit) {
  return report_of(CheckOffsetsTask{ends.data(), static_cast<std::int64_t>(ends.size()), limit, {}});
}

Reported one_hot(std::int64_t index, std::int64_t count) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  return report_of(OneHotTask{&index, count, out.data(), {}});
}

Reported histogram(double low, double high) {
  const double value = 0;
  const std::array<double, 2> range{low, high};
  std::int64_t count = 0;
  return report_of(HistogramTask{&value, range.data(), 1, &count, {}});
}

// One row of three blocks, from a table of masked blocks of at most two, and what it covers.
std::pair<Reported, std::vector<int>> cover_row(std::int64_t count, std::array<std::int64_t, 2> blocks) {
  std::vector<std::uint8_t> cover(3, 9);
  const BlockTable table{&count, blocks.data(), Stored::kInt64, Stored::kInt64, 1, 1, 1, 2};
  const Reported reported = report_of(CoverTask{{table, {}}, 1, 1, 3, cover.data(), {}});
  return {reported, {cover.begin(), cover.end()}};
}

Reported compare_cover(std::vector<std::uint8_t> by_query, std::vector<std::uint8_t> by_key, std::int64_t i) {
  return report_of(CompareCoverTask{by_query.data(), by_key.data(), 2, 2, {}}, i);
}

std::string causal_cover(std::int64_t q_block, std::int64_t k_block, std::int64_t queries,
                         std::int64_t keys) {
  const std::int64_t q_blocks = (queries + q_block - 1) / q_block, k_blocks = (keys + k_block - 1) / k_block;
  std::vector<std::uint8_t> cover(static_cast<std::size_t>(q_blocks * k_blocks), 9);
  const CausalCoverTask task{q_blocks, k_blocks, q_block, k_block, queries, cover.data()};
  std::string text;
  for (std::int64_t i = 0; i < q_blocks * k_blocks; ++i) {
    task.run(i);
    if (i > 0 && i % k_blocks == 0) text += ' ';
    text += static_cast<char>('0' + cover[static_cast<std::size_t>(i)]);
  }
  return text;
}

TEST_CASE("an index that is refused is reported with the extent") {
  CHECK(resolve(4, 5, false) == kNothing);
  CHECK(resolve(5, 5, false) == Reported{FaultCode::kIndex, 5, 5});
  CHECK(resolve(-1, 5, false) == Reported{FaultCode::kIndex, -1, 5});
  CHECK(resolve(-5, 5, true) == kNothing);
  CHECK(resolve(-6, 5, true) == Reported{FaultCode::kIndex, -6, 5});
  CHECK(resolve(3, 0, true) == Reported{FaultCode::kIndex, 3, 0});
  CHECK(one_hot(2, 3) == kNothing);
  CHECK(one_hot(3, 3) == Reported{FaultCode::kIndex, 3, 3});
  CHECK(one_hot(-2, 3) == Reported{FaultCode::kIndex, -2, 3});
}

TEST_CASE("counts and group bounds that are refused are reported as they are") {
  CHECK(check_counts({2, 2, 5}, 5) == kNothing);
  CHECK(check_counts({4, 1}, 1) == Reported{FaultCode::kCount, -3, 0});
  CHECK(check_counts({2, 5}, 6) == Reported{FaultCode::kTotal, 5, 6});
  CHECK(check_offsets({2, 2, 5}, 5) == kNothing);
  CHECK(check_offsets({3, 2}, 8) == Reported{FaultCode::kOffsets, 2, 8});
  CHECK(check_offsets({3, 9}, 8) == Reported{FaultCode::kOffsets, 9, 8});
}

TEST_CASE("a histogram wants a finite interval that ascends") {
  constexpr double kLargest = std::numeric_limits<double>::max();
  CHECK(histogram(-1, 1) == kNothing);
  CHECK(histogram(2, 2) == kNothing);
  CHECK(histogram(1, -1) == Reported{FaultCode::kInterval});
  CHECK(histogram(-kLargest, kLargest) == Reported{FaultCode::kInterval});
  CHECK(histogram(1e300, 1e300) == Reported{FaultCode::kInterval});  // 1 on each side is lost
}

TEST_CASE("block tables cover what they list, and what they cannot mean is reported") {
  using Row = std::vector<int>;
  CHECK(cover_row(2, {2, 0}) == std::pair(kNothing, Row{1, 0, 1}));
  CHECK(cover_row(1, {2, 0}) == std::pair(kNothing, Row{0, 0, 1}));
  CHECK(cover_row(3, {2, 0}) == std::pair(Reported{FaultCode::kBlock, 3, 3}, Row{0, 0, 0}));
  CHECK(cover_row(-1, {2, 0}) == std::pair(Reported{FaultCode::kBlock, -1, 3}, Row{0, 0, 0}));
  CHECK(cover_row(2, {1, 4}) == std::pair(Reported{FaultCode::kBlock, 4, 3}, Row{0, 1, 0}));
  CHECK(cover_row(2, {1, 3}) == std::pair(Reported{FaultCode::kBlock, 3, 3}, Row{0, 1, 0}));
  CHECK(cover_row(2, {-1, 1}) == std::pair(Reported{FaultCode::kBlock, -1, 3}, Row{0, 0, 0}));
  CHECK(cover_row(2, {2, 2}) == std::pair(Reported{FaultCode::kTwice, 2, 0}, Row{0, 0, 1}));
}

TEST_CASE("tables by query and by key name the same pairs, transposed") {
  CHECK(compare_cover({1, 2, 0, 1}, {1, 0, 2, 1}, 1) == kNothing);
  CHECK(compare_cover({1, 2, 0, 1}, {1, 2, 0, 1}, 1) == Reported{FaultCode::kTwice, 1, 1});
  CHECK(compare_cover({1, 2, 0, 1}, {1, 2, 0, 1}, 2) == Reported{FaultCode::kTwice, 0, 1});
}

TEST_CASE("causal attention covers blocks of keys up to the last query of a block") {
  CHECK(causal_cover(2, 2, 6, 6) == "100 110 111");
  CHECK(causal_cover(2, 3, 6, 9) == "100 110 110");
  CHECK(causal_cover(4, 2, 5, 8) == "1100 1110");  // the second block has one query, the fifth
  CHECK(causal_cover(3, 1, 3, 4) == "1110");
}

TEST_CASE("the last of equal offsets is the last of those that are counted") {
  const std::vector<std::int64_t> offsets = {4, 4, 9, 9, 9};
  const SortedPositions sorted{offsets.data(), nullptr, 4};
  CHECK(sorted.is_first(0));
  CHECK_FALSE(sorted.is_first(1));
  CHECK(sorted.is_first(2));
  CHECK_FALSE(sorted.is_last(0));
  CHECK(sorted.is_last(1));
  CHECK_FALSE(sorted.is_last(2));
  CHECK(sorted.is_last(3));
}

TEST_CASE("coordinates are written with the strides of their tensor") {
  const std::vector<std::int64_t> found = {1, 5};
  std::vector<std::int64_t> out(6, -1);
  const CoordinatesTask task{{2, true, {2, 3}}, found.data(), out.data(), 3, 2};
  for (std::int64_t i = 0; i < 4; ++i) task.run(i);
  CHECK(out == std::vector<std::int64_t>{0, -1, 1, 1, -1, 2});
}

TEST_CASE("the maximum of a lane skips a NaN, or is one") {
  std::vector<float> row(3 * math::kLanes, 0.0f);
  row[0] = 2, row[math::kLanes] = 3, row[2 * math::kLanes] = 1;
  row[1 + math::kLanes] = std::numeric_limits<float>::quiet_NaN();
  const auto maxima_of = [&](NanRule rule) {
    std::vector<float> lanes(math::kLanes, -1.0f);
    const LaneMaximumTask<float> task{{row.data(), 3 * math::kLanes, 0, 1}, lanes.data(), rule};
    for (std::int64_t i = 0; i < math::kLanes; ++i) task.run(i);
    return std::pair(lanes[0], lanes[1]);
  };
  CHECK(maxima_of(NanRule::kSkip) == std::pair(3.0f, 0.0f));
  CHECK(maxima_of(NanRule::kWins).first == 3.0f);
  CHECK(std::isnan(maxima_of(NanRule::kWins).second));
}

TEST_CASE("of zeros of both signs the first in its own row is the maximum") {
  const std::vector<float> data = {-0.0f, -0.0f, -1.0f, 0.0f, -0.0f, -0.0f};  // rows of three
  std::vector<float> lanes(2 * math::kLanes, -math::infinity<float>()), out(2);
  lanes[1] = lanes[math::kLanes] = 0.0f;
  const RowMaximumTask<float> task{{data.data(), 3, 3, 1}, lanes.data(), out.data()};
  task.run(0), task.run(1);
  CHECK(out == std::vector<float>{0.0f, 0.0f});
  CHECK(std::signbit(out[0]));
  CHECK_FALSE(std::signbit(out[1]));
}

TEST_CASE("what is found in a row's own tiles is read of that row") {
  const std::vector<float> data = {1, 0, 5, 0, 7, 3, 9, 8, 0};
  const std::vector<std::int64_t> found = {0, 2, 1, 2, 0, 1};
  std::vector<float> values(3);
  std::vector<std::int64_t> positions(3);
  const FindAmongTilesTask<float> task{
      {data.data(), 3, 3, 1}, 2, found.data(), values.data(), positions.data(), RowOp::kLargest};
  for (std::int64_t row = 0; row < 3; ++row) task.run(row);
  CHECK(positions == std::vector<std::int64_t>{2, 1, 0});
  CHECK(values == std::vector<float>{5, 7, 9});
}

}  // namespace
}  // namespace epweave::replay::tasks
