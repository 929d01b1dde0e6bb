// Kernels over rows: sums, extremes, scans, sorts; see tasks.h.
#pragma once

#include "replay/device/tasks.h"

namespace epweave::replay::device {

// `length` elements of a compute type, element j of row r at data[r * row_stride + j * stride].

template <class C>
struct RowsOf {
  const C* data;
  std::int64_t length, row_stride, stride;

  EPWEAVE_HD C at(std::int64_t row, std::int64_t j) const { return data[row * row_stride + j * stride]; }
};

// lanes[r * 16 + l]: the sum of elements l, l + 16, ... of row r. Index: r * 16 + l.
template <class C>
struct LaneSumTask {
  RowsOf<C> rows;
  C* lanes;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t row = i / math::kLanes;
    C sum = C(0);
    for (std::int64_t j = i % math::kLanes; j < rows.length; j += math::kLanes) sum = sum + rows.at(row, j);
    lanes[i] = sum;
  }
};
// out[r] = the lanes of row r added up; divided by `divisor` where that is not 0. Overwrites the lanes.
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

// The largest element of each row, -inf where there is none: of equal ones the first. NaN is skipped, or wins.
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

// What a single thread finds in, or makes of, a row.
enum class RowOp : std::uint8_t { kLargest, kSmallest, kAll, kAny };
template <class C>
struct FindInRowTask {
  RowsOf<C> rows;
  C* value;                // may be null
  std::int64_t* position;  // of the extreme: the first of equals, a NaN wins; kAll, kAny: 1 or 0
  RowOp op;

  EPWEAVE_HD void run(std::int64_t row) const {
    if (op == RowOp::kAll || op == RowOp::kAny) {
      const bool stops = op == RowOp::kAny;
      std::int64_t found = stops ? 0 : 1;
      for (std::int64_t j = 0; j < rows.length && (found != 0) != stops; ++j)
        if ((rows.at(row, j) != C(0)) == stops) found = stops ? 1 : 0;
      position[row] = found;
      return;
    }
    std::int64_t best = 0;
    for (std::int64_t j = 0; j < rows.length; ++j) {
      const C x = rows.at(row, j), y = rows.at(row, best);
      if (x != x) {
        best = j;
        break;
      }
      if (op == RowOp::kLargest ? x > y : x < y) best = j;
    }
    if (position != nullptr) position[row] = best;
    if (value != nullptr) value[row] = rows.at(row, best);
  }
};

// Partial sums or products in place, ascending. Index: the row.
enum class ScanOp : std::uint8_t { kSum, kProduct };
template <class C>
struct CumulativeTask {
  C* data;
  std::int64_t length;
  ScanOp op;

  EPWEAVE_HD void run(std::int64_t row) const {
    C* x = data + row * length;
    for (std::int64_t j = 1; j < length; ++j) x[j] = combine(x[j - 1], x[j]);
  }

 private:
  EPWEAVE_HD C combine(C a, C b) const {
    if constexpr (math::is_int<C>)
      return op == ScanOp::kSum ? math::wrapping_add(a, b) : math::wrapping_mul(a, b);
    else
      return op == ScanOp::kSum ? a + b : a * b;
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

// Element i of all rows goes to its place in the sorted row, if that is below `count`: equal elements keep
// their order, NaN is the largest.
template <class C>
struct SortTask {
  RowsOf<C> rows;
  C* values;
  std::int64_t* indices;
  std::int64_t count;
  bool is_descending;

  EPWEAVE_HD static bool is_less(C a, C b) {
    if (a != a) return false;
    if (b != b) return true;
    return a < b;
  }
  EPWEAVE_HD bool goes_before(C a, C b) const { return is_descending ? is_less(b, a) : is_less(a, b); }
  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t row = i / rows.length, j = i % rows.length;
    const C x = rows.at(row, j);
    std::int64_t place = 0;
    for (std::int64_t k = 0; k < j; ++k) place += goes_before(x, rows.at(row, k)) ? 0 : 1;
    for (std::int64_t k = j + 1; k < rows.length; ++k) place += goes_before(rows.at(row, k), x) ? 1 : 0;
    if (place >= count) return;
    values[row * count + place] = x;
    indices[row * count + place] = j;
  }
};

}  // namespace epweave::replay::device
