// What the device's kernels compute, as plain structs that are copied to the device: one source for CUDA and
// for the host.
//
// A task is a number of independent indices; `run(i)` does the work of index i, and no index reads what
// another writes. On a GPU a thread runs one index; the emulated device is a loop. So their indexing and their
// arithmetic are tested without a GPU. The orders that bits depend on are those of the CPU's kernels
// (cpu/kernels.h); here are no float atomics and nothing else that depends on timing. C++17.
#pragma once

#include "replay/device/fault.h"
#include "replay/math/element_ops.h"
#include "replay/math/sum_order.h"

namespace epweave::replay::device {

using math::ElementOp;
using math::Stored;

inline constexpr int kMaxRank = 10;

enum class Compute : std::uint8_t { kFloat, kDouble, kInt, kComplex };

// A number in any compute type.
struct Number {
  double real;
  std::int64_t whole;
  float re, im;

  template <class C>
  EPWEAVE_HD C as() const {
    if constexpr (math::is_int<C>)
      return whole;
    else if constexpr (math::is_complex_type<C>)
      return math::Complex(re, im);
    else
      return static_cast<C>(real);
  }
};

// Extents in row-major order, and the strides (elements) of up to four tensors over them.
struct Shape {
  int rank;
  std::int64_t sizes[kMaxRank];
};
struct Strided {
  void* data;  // the first element
  std::int64_t strides[kMaxRank];
  Stored stored;
};

// Where element `index` in row-major order of the shape is in the tensor.
EPWEAVE_HD std::int64_t offset_of(const Shape& shape, const std::int64_t* strides, std::int64_t index) {
  std::int64_t offset = 0;
  for (int d = shape.rank - 1; d > 0; --d) {
    const std::int64_t size = shape.sizes[d];
    offset += index % size * strides[d];
    index /= size;
  }
  return shape.rank == 0 ? 0 : offset + index * strides[0];
}

// ---- elementwise --------------------------------------------------------------------------

// out[i] = op(in0[i], ...); index i is the i-th element of the shape.
template <int N>
struct MapTask {
  Shape shape;
  Strided out;
  Strided in[N == 0 ? 1u : static_cast<unsigned>(N)];
  Number number;
  FaultSink sink;
  ElementOp op;
  Compute compute;

  EPWEAVE_HD void run(std::int64_t i) const {
    switch (compute) {
      case Compute::kFloat:
        return run_as<float>(i);
      case Compute::kDouble:
        return run_as<double>(i);
      case Compute::kInt:
        return run_as<std::int64_t>(i);
      case Compute::kComplex:
        return run_as<math::Complex>(i);
    }
  }

 private:
  template <class C>
  EPWEAVE_HD C load(int k, std::int64_t i) const {
    return math::load_element<C>(in[k].data, in[k].stored, offset_of(shape, in[k].strides, i));
  }
  template <class C>
  EPWEAVE_HD void run_as(std::int64_t i) const {
    math::ElementArgs<C> args{number.as<C>(), C(0), C(0), C(0)};
    C result = args.number;
    if constexpr (N == 1) {
      args.x = load<C>(0, i);
      result = math::apply_unary(op, args);
    } else if constexpr (N == 2) {
      args.x = load<C>(0, i);
      args.y = load<C>(1, i);
      if constexpr (math::is_int<C>)
        if (args.y == 0 && math::divides_integers(op)) sink.raise(FaultCode::kDivision, args.x, 0);
      result = math::apply_binary(op, args);
    } else if constexpr (N == 3) {
      args.x = load<C>(0, i);
      args.y = load<C>(1, i);
      args.z = load<C>(2, i);
      result = math::apply_ternary(op, args);
    }
    math::store_element(out.data, out.stored, offset_of(shape, out.strides, i), result);
  }
};

// An element's bits; 16 bytes are no dtype that kernels know.
EPWEAVE_HD void copy_bits(void* to, std::int64_t to_at, const void* from, std::int64_t from_at, int bytes) {
  switch (bytes) {
    case 1:
      return math::write_stored(to, to_at, math::read_stored<std::uint8_t>(from, from_at));
    case 2:
      return math::write_stored(to, to_at, math::read_stored<std::uint16_t>(from, from_at));
    case 4:
      return math::write_stored(to, to_at, math::read_stored<std::uint32_t>(from, from_at));
    default:
      return math::write_stored(to, to_at, math::read_stored<std::uint64_t>(from, from_at));
  }
}

// Copies elements of equal dtypes.
struct CopyTask {
  Shape shape;
  Strided to, from;
  int bytes;  // of an element

  EPWEAVE_HD void run(std::int64_t i) const {
    copy_bits(to.data, offset_of(shape, to.strides, i), from.data, offset_of(shape, from.strides, i), bytes);
  }
};

// start + i * step, as int64 or double.
struct ProgressionTask {
  Strided out;
  Number start, step;
  bool is_whole;

  EPWEAVE_HD void run(std::int64_t i) const {
    if (is_whole)
      math::store_element(out.data, out.stored, i * out.strides[0], start.whole + i * step.whole);
    else
      math::store_element(out.data, out.stored, i * out.strides[0],
                          start.real + static_cast<double>(i) * step.real);
  }
};

// ---- rows ---------------------------------------------------------------------------------
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

// Partial sums in place, ascending. Index: the row.
template <class C>
struct CumulativeTask {
  C* data;
  std::int64_t length;

  EPWEAVE_HD void run(std::int64_t row) const {
    C* x = data + row * length;
    for (std::int64_t j = 1; j < length; ++j) x[j] = x[j - 1] + x[j];
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

// Fails if the one element is 0.
struct AssertTask {
  const void* data;
  Stored stored;
  FaultSink sink;

  EPWEAVE_HD void run(std::int64_t) const {
    if (math::load_element<double>(data, stored, 0) == 0) sink.raise(FaultCode::kAssertion, 0, 0);
  }
};

}  // namespace epweave::replay::device
