// Kernels over rows: sums, extremes, scans, sorts; see tasks.h.
#pragma once

#include "replay/kernels/tasks/tasks.h"

namespace epweave::replay::tasks {

// `length` elements of a compute type, element j of row r at data[r * row_stride + j * stride].

template <class C>
struct RowsOf {
  const C* data;
  std::int64_t length, row_stride, stride;

  EPWEAVE_HD C at(std::int64_t row, std::int64_t j) const { return data[row * row_stride + j * stride]; }
};

// A thread reads this many elements before it uses the first: the order of its additions makes it
// wait for each sum, it need not wait for memory as often.
inline constexpr int kAhead = 8;

// lanes[(r * tiles + t) * 16 + l]: the sum of elements l, l + 16, ... of tile t of row r. Index:
// the same, or, where rows lie side by side, count (16 t + l) + r: neighbours read neighbouring
// elements.
template <class C>
struct LaneSumTask {
  RowsOf<C> rows;
  std::int64_t count, tiles;  // rows, and tiles of each
  C* lanes;

  EPWEAVE_HD void run(std::int64_t i) const {
    const bool is_side_by_side = rows.row_stride == 1;
    const std::int64_t of_row = tiles * math::kLanes, row = is_side_by_side ? i % count : i / of_row,
                       place = is_side_by_side ? i / count : i % of_row;
    const std::int64_t first = place / math::kLanes * math::kSumTile,
                       end = math::end_of_sum_tile(first, rows.length);
    C sum = C(0);
    std::int64_t j = first + place % math::kLanes;
    for (; j + (kAhead - 1) * math::kLanes < end; j += kAhead * math::kLanes) {
      C ahead[kAhead];
      EPWEAVE_UNROLL
      for (int k = 0; k < kAhead; ++k) ahead[k] = rows.at(row, j + k * math::kLanes);
      EPWEAVE_UNROLL
      for (int k = 0; k < kAhead; ++k) sum = sum + ahead[k];
    }
    for (; j < end; j += math::kLanes) sum = sum + rows.at(row, j);
    lanes[row * of_row + place] = sum;
  }
};
// out[r] = the lanes of row r added up; divided by `divisor` where that is not 0. Overwrites the
// lanes.
template <class C>
struct LaneTotalTask {
  C* lanes;
  C* out;
  C divisor;

  EPWEAVE_HD void run(std::int64_t row) const {
    const C total = math::add_lanes(lanes + row * math::kLanes);
    if constexpr (math::is_int<C>)
      out[row] = total;
    else
      out[row] = divisor == C(0) ? total : total / divisor;
  }
};

// The largest element of each row, -inf where there is none: of equal ones the first. NaN is
// skipped, or wins.
enum class NanRule : std::uint8_t { kSkip, kWins };
template <class C>
struct LaneMaximumTask {
  RowsOf<C> rows;
  C* lanes;
  NanRule nan;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t row = i / math::kLanes;
    C best = -math::infinity<C>();
    for (std::int64_t j = i % math::kLanes; j < rows.length; j += math::kLanes) {
      const C x = rows.at(row, j);
      if (x > best || (nan == NanRule::kWins && x != x)) best = x;
    }
    lanes[i] = best;
  }
};
template <class C>
struct RowMaximumTask {
  RowsOf<C> rows;
  const C* lanes;
  C* out;

  EPWEAVE_HD void run(std::int64_t row) const {
    C best = -math::infinity<C>();
    for (std::int64_t l = 0; l < math::kLanes; ++l) {
      const C x = lanes[row * math::kLanes + l];
      if (x > best || x != x) best = x;
    }
    // Zeros of both signs are equal: the first one in the row.
    if (best == C(0))
      for (std::int64_t j = 0; j < rows.length; ++j)
        if (rows.at(row, j) == C(0)) {
          best = rows.at(row, j);
          break;
        }
    out[row] = best;
  }
};

// What is found in a row: in each of its tiles, then among the tiles.
enum class RowOp : std::uint8_t { kLargest, kSmallest, kAll, kAny };
inline constexpr std::int64_t kFindTile = 1024;

template <class C>
EPWEAVE_HD bool is_better(RowOp op, C x, C y) {
  return op == RowOp::kLargest ? x > y : x < y;
}
// positions[row, tile] = that of the extreme in the tile: the first of equals, a NaN wins; kAll,
// kAny: 1 or 0. Index: row * tiles + tile.
template <class C>
struct FindInTileTask {
  RowsOf<C> rows;
  std::int64_t tiles;  // of a row
  std::int64_t* positions;
  RowOp op;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t row = i / tiles, first = i % tiles * kFindTile;
    const std::int64_t end = first + kFindTile < rows.length ? first + kFindTile : rows.length;
    positions[i] = op == RowOp::kAll || op == RowOp::kAny ? test(row, first, end) : find(row, first, end);
  }

 private:
  EPWEAVE_HD std::int64_t test(std::int64_t row, std::int64_t first, std::int64_t end) const {
    const bool stops = op == RowOp::kAny;
    for (std::int64_t j = first; j < end; ++j)
      if ((rows.at(row, j) != C(0)) == stops) return stops ? 1 : 0;
    return stops ? 0 : 1;
  }
  EPWEAVE_HD std::int64_t find(std::int64_t row, std::int64_t first, std::int64_t end) const {
    C best = C(0);
    std::int64_t at = first;
    for (std::int64_t j = first; j < end; ++j) {
      const C x = rows.at(row, j);
      if (x != x) return j;
      if (j == first || is_better(op, x, best)) {
        best = x;
        at = j;
      }
    }
    return at;
  }
};
// The same among the tiles. Index: the row.
template <class C>
struct FindAmongTilesTask {
  RowsOf<C> rows;
  std::int64_t tiles;
  const std::int64_t* found;  // by row and tile
  C* value;                   // may be null
  std::int64_t* position;
  RowOp op;

  EPWEAVE_HD void run(std::int64_t row) const {
    const std::int64_t* of_row = found + row * tiles;
    if (op == RowOp::kAll || op == RowOp::kAny) {
      const std::int64_t stop = op == RowOp::kAny ? 1 : 0;
      std::int64_t result = 1 - stop;
      for (std::int64_t t = 0; t < tiles; ++t)
        if (of_row[t] == stop) result = stop;
      position[row] = result;
      return;
    }
    std::int64_t at = of_row[0];
    for (std::int64_t t = 1; t < tiles; ++t) {
      const C x = rows.at(row, of_row[t]), best = rows.at(row, at);
      if (best != best) break;
      if (x != x || is_better(op, x, best)) at = of_row[t];
    }
    position[row] = at;
    if (value != nullptr) value[row] = rows.at(row, at);
  }
};

// Rows x of A x = b in place of b, A triangular. Index: the row.
template <class C>
struct SolveTask {
  const C* square;
  C* data;
  std::int64_t length, rows_per_square;
  std::int64_t row_stride, column_stride;  // of A, whose matrices lie one behind another
  bool is_lower, is_unit;

  EPWEAVE_HD void run(std::int64_t row) const {
    const C* a = square + row / rows_per_square * length * length;
    C* x = data + row * length;
    for (std::int64_t step = 0; step < length; ++step) {
      const std::int64_t i = is_lower ? step : length - 1 - step;
      const std::int64_t first = is_lower ? 0 : i + 1, end = is_lower ? i : length;
      C rest = x[i];
      for (std::int64_t j = first; j < end; ++j)
        rest = math::fma(-a[i * row_stride + j * column_stride], x[j], rest);
      x[i] = is_unit ? rest : rest / a[i * row_stride + i * column_stride];
    }
  }
};

// Partial sums or products in place, ascending. Index: the row.
enum class ScanOp : std::uint8_t { kSum, kProduct };
template <class C>
EPWEAVE_HD C scan_step(ScanOp op, C a, C b) {
  if constexpr (math::is_int<C>)
    return op == ScanOp::kSum ? math::wrapping_add(a, b) : math::wrapping_mul(a, b);
  else
    return op == ScanOp::kSum ? a + b : a * b;
}
template <class C>
struct CumulativeTask {
  C* data;
  std::int64_t length;
  ScanOp op;

  EPWEAVE_HD void run(std::int64_t row) const {
    C* x = data + row * length;
    for (std::int64_t j = 1; j < length; ++j) x[j] = scan_step(op, x[j - 1], x[j]);
  }
};
// The same of integers, which have no order, in tiles: each tile on its own, with what all of it
// gives; partial sums of those, in tiles again; and what comes before each tile with it. Loads do
// not wait for each other within a batch.
inline constexpr std::int64_t kScanTile = 64;
struct ScanTilesTask {  // index: row * tiles + tile
  std::int64_t* data;
  std::int64_t length, tiles;
  std::int64_t* of_tiles;
  ScanOp op;
  static constexpr int kBatch = 8;
  static constexpr std::size_t kHeld = kBatch;

  EPWEAVE_HD void run(std::int64_t i) const {
    std::int64_t* x = data + i / tiles * length;
    const std::int64_t first = i % tiles * kScanTile;
    const std::int64_t end = first + kScanTile < length ? first + kScanTile : length;
    std::int64_t all = op == ScanOp::kSum ? 0 : 1;
    for (std::int64_t j = first; j < end; j += kBatch) {
      std::int64_t held[kHeld] = {};
      EPWEAVE_UNROLL
      for (int k = 0; k < kBatch; ++k)
        if (j + k < end) held[k] = x[j + k];
      EPWEAVE_UNROLL
      for (int k = 0; k < kBatch; ++k) {
        if (j + k >= end) break;
        all = scan_step(op, all, held[k]);
        x[j + k] = all;
      }
    }
    of_tiles[i] = all;
  }
};
struct AddCarryTask {  // index: the element
  std::int64_t* data;
  std::int64_t length, tiles;
  const std::int64_t* up_to_tiles;
  ScanOp op;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t row = i / length, tile = i % length / kScanTile;
    if (tile != 0) data[i] = scan_step(op, up_to_tiles[row * tiles + tile - 1], data[i]);
  }
};

// Running maxima in place, and where they are: of equals the last, and a NaN stays. Index: the row.
template <class C>
struct RunningMaximumTask {
  C* data;
  std::int64_t* positions;
  std::int64_t length;

  EPWEAVE_HD void run(std::int64_t row) const {
    C* x = data + row * length;
    std::int64_t best = 0;
    for (std::int64_t j = 0; j < length; ++j) {
      const bool is_nan = x[j] != x[j];
      if (x[best] != x[best] ? is_nan : is_nan || x[j] >= x[best]) best = j;
      x[j] = x[best];
      positions[row * length + j] = best;
    }
  }
};

// One pass of a stable merge sort: runs of `run_length` elements are sorted, those of twice as many
// will be. The first pass sorts runs of kFirstRun, whatever they were: a launch for seven. Equal
// elements keep their order, NaN is the largest. Index: the element of all rows.
template <class C>
struct MergeTask {
  static constexpr std::int64_t kFirstRun = 128;

  const C* from;
  const std::int64_t* from_indices;  // null in the first pass: the position in the row
  C* to;
  std::int64_t* to_indices;
  std::int64_t length, run_length;
  bool is_descending;

  EPWEAVE_HD static bool is_less(C a, C b) {
    if (a != a) return false;
    if (b != b) return true;
    return a < b;
  }
  EPWEAVE_HD bool goes_before(C a, C b) const { return is_descending ? is_less(b, a) : is_less(a, b); }
  EPWEAVE_HD void run(std::int64_t i) const {
    if (from_indices == nullptr)
      place_by_count(i);
    else
      place_by_search(i);
  }

 private:
  // The element's place is how many of its run go before it. Neighbouring threads read the same
  // elements at a time.
  EPWEAVE_HD void place_by_count(std::int64_t i) const {
    const std::int64_t base = i / length * length, j = i % length;
    const std::int64_t first = j / kFirstRun * kFirstRun, end = smaller(first + kFirstRun, length);
    const C x = from[i];
    std::int64_t before = 0;
    for (std::int64_t at = first; at < end; ++at) {
      const C y = from[base + at];
      if (at < j ? !goes_before(x, y) : goes_before(y, x)) ++before;
    }
    to[base + first + before] = x;
    to_indices[base + first + before] = j;
  }
  // The element's place is its own in its run, and how many of the other run go before it.
  EPWEAVE_HD void place_by_search(std::int64_t i) const {
    const std::int64_t base = i / length * length, j = i % length;
    const std::int64_t first = j / (2 * run_length) * (2 * run_length);
    const std::int64_t middle = smaller(first + run_length, length),
                       end = smaller(first + 2 * run_length, length);
    const bool is_left = j < middle;
    const C x = from[i];
    const std::int64_t start = is_left ? middle : first;
    std::int64_t low = start, high = is_left ? end : middle;
    while (low < high) {
      const std::int64_t at = low + (high - low) / 2;
      const C y = from[base + at];
      if (is_left ? goes_before(y, x) : !goes_before(x, y))
        low = at + 1;
      else
        high = at;
    }
    const std::int64_t place = base + first + (low - start) + (is_left ? j - first : j - middle);
    to[place] = x;
    to_indices[place] = from_indices[i];
  }
  EPWEAVE_HD static std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
};

}  // namespace epweave::replay::tasks
