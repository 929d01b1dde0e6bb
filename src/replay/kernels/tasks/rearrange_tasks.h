// Kernels that find, place and count elements; see tasks.h. How many were found is on the device
// until the host asks.
#pragma once

#include "replay/kernels/tasks/tasks.h"

namespace epweave::replay::tasks {

// Adds 1; indices of a task may meet here, which no order can be seen in.
EPWEAVE_HD void count_up(std::int64_t* at) {
#ifdef __CUDA_ARCH__
  atomicAdd(reinterpret_cast<unsigned long long*>(at), 1ull);
#else
  ++*at;
#endif
}

// out = from on one side of a diagonal of the last two dimensions, else 0 bits. Index: the element.
struct TriangleTask {
  Shape shape;
  Strided out, from;
  std::int64_t rows, columns, diagonal;
  int bytes;
  bool is_lower;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t on = i / columns % rows + diagonal, column = i % columns;
    const std::uint64_t zero = 0;
    const bool is_kept = is_lower ? column <= on : column >= on;
    copy_bits(out.data, offset_of(shape, out.strides, i), is_kept ? from.data : &zero,
              is_kept ? offset_of(shape, from.strides, i) : 0, bytes);
  }
};

// ---- which elements are true --------------------------------------------------------------
// Of a row of flags: each tile counts its own, and places what it finds behind what the tiles
// before it found.

inline constexpr std::int64_t kFlagsPerTile = 256;

struct Flags {
  const std::uint8_t* data;
  std::int64_t count;

  EPWEAVE_HD std::int64_t end_of(std::int64_t tile) const {
    const std::int64_t end = (tile + 1) * kFlagsPerTile;
    return end < count ? end : count;
  }
};
// Index: the tile.
struct CountFlagsTask {
  Flags flags;
  std::int64_t* counts;

  EPWEAVE_HD void run(std::int64_t tile) const {
    std::int64_t found = 0;
    for (std::int64_t i = tile * kFlagsPerTile; i < flags.end_of(tile); ++i)
      found += flags.data[i] != 0 ? 1 : 0;
    counts[tile] = found;
  }
};
// `ends`: the tiles' counts added up. Index: the tile.
struct FindFlagsTask {
  Flags flags;
  const std::int64_t* ends;
  std::int64_t* found;

  EPWEAVE_HD void run(std::int64_t tile) const {
    std::int64_t at = tile == 0 ? 0 : ends[tile - 1];
    for (std::int64_t i = tile * kFlagsPerTile; i < flags.end_of(tile); ++i)
      if (flags.data[i] != 0) found[at++] = i;
  }
};
// out[p, d] = the coordinate of row-major position found[p] along dimension d. Index: p * rank + d.
struct CoordinatesTask {
  Shape shape;
  const std::int64_t* found;
  std::int64_t* out;
  std::int64_t row_stride, stride;

  EPWEAVE_HD void run(std::int64_t i) const {
    const std::int64_t p = i / shape.rank, d = i % shape.rank;
    std::int64_t rest = found[p];
    for (std::int64_t k = shape.rank - 1; k > d; --k) rest /= shape.sizes[k];
    out[p * row_stride + d * stride] = rest % shape.sizes[d];
  }
};
// out[p] = the element at row-major position found[p].
struct PickTask {
  Shape shape;
  Strided from;
  const std::int64_t* found;
  void* out;
  std::int64_t out_stride;
  int bytes;

  EPWEAVE_HD void run(std::int64_t p) const {
    copy_bits(out, p * out_stride, from.data, offset_of(shape, from.strides, found[p]), bytes);
  }
};

// ---- counts -------------------------------------------------------------------------------

// out[i] = the first row whose cumulative count is above i. Index: i.
struct RepeatTask {
  const std::int64_t* ends;  // cumulative counts
  std::int64_t count;
  std::int64_t* out;

  EPWEAVE_HD void run(std::int64_t i) const {
    std::int64_t low = 0, high = count;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (ends[middle] > i)
        high = middle;
      else
        low = middle + 1;
    }
    out[i] = low;
  }
};
// Counts are not negative and add up to `total`. One index.
struct CheckCountsTask {
  const std::int64_t* ends;
  std::int64_t count, total;
  FaultSink sink;

  EPWEAVE_HD void run(std::int64_t) const {
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if (ends[i] < last) return sink.raise(FaultCode::kCount, ends[i] - last, 0);
      last = ends[i];
    }
    if (last != total) sink.raise(FaultCode::kTotal, last, total);
  }
};
// Group bounds ascend within [0, limit]. One index.
struct CheckOffsetsTask {
  const std::int64_t* ends;
  std::int64_t count, limit;
  FaultSink sink;

  EPWEAVE_HD void run(std::int64_t) const {
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if (ends[i] < last || ends[i] > limit) return sink.raise(FaultCode::kOffsets, ends[i], limit);
      last = ends[i];
    }
  }
};

// out[i, classes[i]] = 1; out is zeroed before. Index: i.
struct OneHotTask {
  const std::int64_t* classes;
  std::int64_t count;
  std::int64_t* out;
  FaultSink sink;

  EPWEAVE_HD void run(std::int64_t i) const {
    if (classes[i] < 0 || classes[i] >= count) return sink.raise(FaultCode::kIndex, classes[i], count);
    out[i * count + classes[i]] = 1;
  }
};
// Bins of equal width over [range[0], range[1]], the last closed; where both are equal, one more to
// each side. Both are finite.
struct HistogramTask {
  const double* values;
  const double* range;
  std::int64_t bins;
  std::int64_t* counts;
  FaultSink sink;

  EPWEAVE_HD void run(std::int64_t i) const {
    const bool is_point = range[0] == range[1];
    const double low = is_point ? range[0] - 1 : range[0], high = is_point ? range[1] + 1 : range[1];
    const double infinity = math::infinity<double>();
    if (!(low < high && high - low < infinity)) return sink.raise(FaultCode::kInterval, 0, 0);
    const double value = values[i];
    if (!(value >= low && value <= high)) return;
    const auto bin = static_cast<std::int64_t>((value - low) / (high - low) * static_cast<double>(bins));
    count_up(counts + (bin < bins - 1 ? bin : bins - 1));
  }
};
// places[i] = how many boundaries of an ascending row lie before value i; `right`: those equal to
// it count too. What does not compare (a NaN on either side) lies before, as torch has it. Values
// [rows, values_per_row], boundaries [rows, length].
template <class C>
struct SearchTask {
  const C* boundaries;
  const C* values;
  std::int64_t length, values_per_row;
  std::int64_t* places;
  bool is_right;

  EPWEAVE_HD void run(std::int64_t i) const {
    const C* row = boundaries + i / values_per_row * length;
    std::int64_t low = 0, high = length;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      const bool is_behind = is_right ? row[middle] > values[i] : row[middle] >= values[i];
      if (is_behind)
        high = middle;
      else
        low = middle + 1;
    }
    places[i] = low;
  }
};
// Counted from both ends, as torch does.
template <class C>
struct LinspaceTask {
  Strided out;
  C start, end, step;
  std::int64_t steps;

  EPWEAVE_HD void run(std::int64_t i) const {
    const C value = i < steps / 2 || steps == 1 ? math::fma(step, static_cast<C>(i), start)
                                                : math::fma(-step, static_cast<C>(steps - 1 - i), end);
    math::store_element(out.data, out.stored, i * out.strides[0], value);
  }
};

}  // namespace epweave::replay::tasks
