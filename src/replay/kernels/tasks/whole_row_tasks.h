// Kernels that read and write whole rows at once: softmax, RMS norm, sums. A block of threads does
// one row, or several short ones.
//
// A row's sum is that of math/sum_order.h: 16 threads add up a lane each, out of shared memory,
// while all threads make the terms of the next tile. Rows are of float32, bfloat16 or float16, and
// computed in float32. C++17.
#pragma once

#include "replay/kernels/tasks/vector_tasks.h"

namespace epweave::replay::tasks {

// Element j of row r at r * row_stride + j.
struct RowPlace {
  void* data;
  std::int64_t row_stride;
  Stored stored;

  using Floats = Vector<float, 4>;
  // Elements j .. j + 3, zeros from `length` on.
  EPWEAVE_HD void load(std::int64_t row, std::int64_t j, std::int64_t length, float (&to)[4]) const {
    if (stored == Stored::kFloat32) return load_as<Stored::kFloat32>(row, j, length, to);
    if (stored == Stored::kBfloat16) return load_as<Stored::kBfloat16>(row, j, length, to);
    load_as<Stored::kFloat16>(row, j, length, to);
  }
  EPWEAVE_HD void store(std::int64_t row, std::int64_t j, std::int64_t length, const float (&from)[4]) const {
    if (stored == Stored::kFloat32) return store_as<Stored::kFloat32>(row, j, length, from);
    if (stored == Stored::kBfloat16) return store_as<Stored::kBfloat16>(row, j, length, from);
    store_as<Stored::kFloat16>(row, j, length, from);
  }

 private:
  template <class V>
  EPWEAVE_HD static bool is_whole(const void* first, std::int64_t j, std::int64_t length) {
    return j + 4 <= length && is_aligned<V>(first);
  }
  template <Stored kStored>
  EPWEAVE_HD void load_as(std::int64_t row, std::int64_t j, std::int64_t length, float (&to)[4]) const {
    using Element = typename StoredElement<kStored>::Type;
    using V = Vector<Element, 4>;
    const Element* from = static_cast<const Element*>(data) + row * row_stride + j;
    V held;
    if (is_whole<V>(from, j, length)) {
      held = *reinterpret_cast<const V*>(from);
    } else {
      EPWEAVE_UNROLL_ON_GPU
      for (int q = 0; q < 4; ++q) held.at[q] = j + q < length ? from[q] : Element(0);
    }
    EPWEAVE_UNROLL_ON_GPU
    for (int q = 0; q < 4; ++q) to[q] = math::load_element<float>(&held.at[q], kStored, 0);
  }
  template <Stored kStored>
  EPWEAVE_HD void store_as(std::int64_t row, std::int64_t j, std::int64_t length,
                           const float (&from)[4]) const {
    using Element = typename StoredElement<kStored>::Type;
    using V = Vector<Element, 4>;
    Element* to = static_cast<Element*>(data) + row * row_stride + j;
    V held;
    EPWEAVE_UNROLL_ON_GPU
    for (int q = 0; q < 4; ++q) math::store_element(&held.at[q], kStored, 0, from[q]);
    if (is_whole<V>(to, j, length)) {
      store_vector(reinterpret_cast<V*>(to), held);
      return;
    }
    EPWEAVE_UNROLL_ON_GPU
    for (int q = 0; q < 4; ++q)
      if (j + q < length) to[q] = held.at[q];
  }
};

// What is known of a row: its largest element, and what its sum makes of it.
struct RowFacts {
  float maximum, total;
};

// ---- what is done to a row ----------------------------------------------------------------

// An op has `term` of an element, which is added up, `finish` of the sum, `result` of an element.
// The first kTermInputs inputs are those of `term`.
struct SoftmaxForward {
  static constexpr int kInputs = 1, kTermInputs = 1;
  static constexpr bool kHasMaximum = true, kHasResult = true;
  std::int64_t length;

  EPWEAVE_HD void start(std::int64_t, RowFacts&) const {}
  EPWEAVE_HD static float term(const float* x, const RowFacts& row) { return math::exp(x[0] - row.maximum); }
};
struct SoftmaxRow : SoftmaxForward {
  EPWEAVE_HD void finish(std::int64_t, float total, RowFacts& row) const { row.total = total; }
  EPWEAVE_HD static float result(const float* x, const RowFacts& row) { return term(x, row) / row.total; }
};
struct LogSoftmaxRow : SoftmaxForward {
  EPWEAVE_HD void finish(std::int64_t, float total, RowFacts& row) const { row.total = math::log(total); }
  EPWEAVE_HD static float result(const float* x, const RowFacts& row) {
    return x[0] - row.maximum - row.total;
  }
};

// Inputs: the gradient, the softmax.
struct SoftmaxBackwardRow {
  static constexpr int kInputs = 2, kTermInputs = 2;
  static constexpr bool kHasMaximum = false, kHasResult = true;
  std::int64_t length;

  EPWEAVE_HD void start(std::int64_t, RowFacts&) const {}
  EPWEAVE_HD static float term(const float* in, const RowFacts&) { return in[0] * in[1]; }
  EPWEAVE_HD void finish(std::int64_t, float total, RowFacts& row) const { row.total = total; }
  EPWEAVE_HD static float result(const float* in, const RowFacts& row) { return (in[0] - row.total) * in[1]; }
};
struct LogSoftmaxBackwardRow {
  static constexpr int kInputs = 2, kTermInputs = 1;
  static constexpr bool kHasMaximum = false, kHasResult = true;
  std::int64_t length;

  EPWEAVE_HD void start(std::int64_t, RowFacts&) const {}
  EPWEAVE_HD static float term(const float* in, const RowFacts&) { return in[0]; }
  EPWEAVE_HD void finish(std::int64_t, float total, RowFacts& row) const { row.total = total; }
  EPWEAVE_HD static float result(const float* in, const RowFacts& row) {
    return in[0] - math::exp(in[1]) * row.total;
  }
};

// Inputs: x, the weight.
struct RmsNormRow {
  static constexpr int kInputs = 2, kTermInputs = 1;
  static constexpr bool kHasMaximum = false, kHasResult = true;
  std::int64_t length;
  float* scales;  // by row: 1 / sqrt(mean of squares + epsilon)
  float epsilon;

  EPWEAVE_HD void start(std::int64_t, RowFacts&) const {}
  EPWEAVE_HD static float term(const float* in, const RowFacts&) { return in[0] * in[0]; }
  EPWEAVE_HD void finish(std::int64_t r, float total, RowFacts& row) const {
    const float mean = total / static_cast<float>(length);
    scales[r] = row.total = math::rsqrt(math::AddScaled::apply(1.0f, mean, epsilon));
  }
  EPWEAVE_HD static float result(const float* in, const RowFacts& row) { return in[0] * row.total * in[1]; }
};
// Inputs: the gradient, x, the weight.
struct RmsNormBackwardRow {
  static constexpr int kInputs = 3, kTermInputs = 3;
  static constexpr bool kHasMaximum = false, kHasResult = true;
  std::int64_t length;
  const float* scales;

  // `maximum` holds the scale.
  EPWEAVE_HD void start(std::int64_t r, RowFacts& row) const { row.maximum = scales[r]; }
  EPWEAVE_HD static float term(const float* in, const RowFacts& row) {
    return in[0] * in[2] * (in[1] * row.maximum);
  }
  EPWEAVE_HD void finish(std::int64_t, float total, RowFacts& row) const {
    row.total = total / static_cast<float>(length);
  }
  EPWEAVE_HD static float result(const float* in, const RowFacts& row) {
    return row.maximum * (in[0] * in[2] - in[1] * row.maximum * row.total);
  }
};

// The sum itself, divided by `divisor` where that is not 0.
struct RowSum {
  static constexpr int kInputs = 1, kTermInputs = 1;
  static constexpr bool kHasMaximum = false, kHasResult = false;
  std::int64_t length;
  float* out;  // by row
  float divisor;

  EPWEAVE_HD void start(std::int64_t, RowFacts&) const {}
  EPWEAVE_HD static float term(const float* in, const RowFacts&) { return in[0]; }
  EPWEAVE_HD void finish(std::int64_t r, float total, RowFacts&) const {
    out[r] = divisor == 0.0f ? total : total / divisor;
  }
};

// ---- the rows -----------------------------------------------------------------------------

// `in` and `out` over `rows` rows of op.length elements, which is not 0. An index is a block of
// threads, for kThreads >> thread_bits rows. A block goes through `steps()` steps; each of its
// threads has done one before any begins the next.
template <class Op>
struct WholeRowTask {
  static constexpr int kThreads = 256, kLanes = static_cast<int>(math::kLanes);
  static constexpr int kLeastThreads = kLanes;  // of a row
  static constexpr int kMostRows = kThreads / kLeastThreads;
  static constexpr int kBlocks = 3;  // that a multiprocessor holds at least: 80 registers a thread
  static constexpr int kFours = 4;   // of a tile that a thread makes
  static constexpr int kAtOnce = Op::kInputs > 2 ? 2 : 4;  // fours loaded before any is used
  static constexpr std::size_t kHeld = kAtOnce, kIns = Op::kInputs;

  RowPlace out;
  std::int64_t rows;
  Op op;
  int thread_bits;  // of the threads of a row
  RowPlace in[kIns];

  struct Shared {
    RowPlace::Floats tiles[2][static_cast<std::size_t>(kThreads * kFours)];
    float lanes[static_cast<std::size_t>(kMostRows)][static_cast<std::size_t>(kLanes)];
    float found[static_cast<std::size_t>(kThreads)];
    RowFacts facts[static_cast<std::size_t>(kMostRows)];
  };

  // Threads for rows of `length` elements: as many as have four times four of them.
  static int bits_for(std::int64_t length) {
    int bits = 4;
    while ((1 << bits) < kThreads && (std::int64_t{kFours * 4} << bits) < length) ++bits;
    return bits;
  }
  std::int64_t blocks() const {
    const std::int64_t of_block = kThreads >> thread_bits;
    return (rows + of_block - 1) / of_block;
  }
  EPWEAVE_HD std::int64_t steps() const { return kSumsFrom + tiles() + (Op::kHasResult ? 3 : 2); }
  EPWEAVE_HD void step(std::int64_t number, std::int64_t block, int thread, Shared& shared) const {
    const int local = thread >> thread_bits, t = thread & ((1 << thread_bits) - 1);
    const std::int64_t row = block * (kThreads >> thread_bits) + local;
    if (row >= rows) return;
    if constexpr (Op::kHasMaximum) {
      if (number == 0) shared.found[thread] = largest_of_thread(row, t);
      if (number == 1 && t < kLanes)
        shared.found[thread] = largest(&shared.found[thread], 1 << thread_bits, kLanes);
      if (number == 2 && t == 0) shared.facts[local].maximum = largest_of_row(row, &shared.found[thread]);
    }
    const std::int64_t sums = number - kSumsFrom, all = tiles();
    if (sums < 0) return;
    if (sums <= all) {
      const int first = local << thread_bits;
      if (sums < all) make_terms(row, sums, t, shared.facts[local], &shared.tiles[sums % 2][first * kFours]);
      if (sums > 0 && t < kLanes)
        add_terms(sums - 1, t, &shared.tiles[(sums - 1) % 2][first * kFours].at[0], shared.lanes[local][t]);
      return;
    }
    if (sums == all + 1) {
      if (t == 0) {
        op.start(row, shared.facts[local]);
        op.finish(row, math::add_lanes(shared.lanes[local]), shared.facts[local]);
      }
      return;
    }
    if constexpr (Op::kHasResult) make_results(row, t, shared.facts[local]);
  }

 private:
  static constexpr int kSumsFrom = Op::kHasMaximum ? 3 : 0;

  EPWEAVE_HD std::int64_t tile() const { return std::int64_t{kFours * 4} << thread_bits; }
  EPWEAVE_HD std::int64_t tiles() const { return (op.length + tile() - 1) / tile(); }

  // A part of a tile: what all threads load at once. The first element of the thread's k-th four in
  // it, and how many elements it has.
  EPWEAVE_HD std::int64_t part() const { return std::int64_t{kAtOnce * 4} << thread_bits; }
  EPWEAVE_HD int place(int t, int k) const { return ((k << thread_bits) + t) * 4; }
  EPWEAVE_HD int end_of_part(std::int64_t first) const {
    return static_cast<int>(op.length - first < part() ? op.length - first : part());
  }
  template <int kCount>
  EPWEAVE_HD void load(std::int64_t row, std::int64_t first, int t, float (&to)[kHeld][kIns][4]) const {
    const int end = end_of_part(first);
    EPWEAVE_UNROLL_ON_GPU
    for (int k = 0; k < kAtOnce; ++k) {
      if (place(t, k) >= end) continue;
      EPWEAVE_UNROLL_ON_GPU
      for (int i = 0; i < kCount; ++i) in[i].load(row, first + place(t, k), op.length, to[k][i]);
    }
  }
  EPWEAVE_HD static void pick(const float (&from)[kIns][4], int count, int q, float (&to)[kIns]) {
    EPWEAVE_UNROLL_ON_GPU
    for (int i = 0; i < count; ++i) to[i] = from[i][q];
  }

  // NaN is skipped.
  EPWEAVE_HD float largest_of_thread(std::int64_t row, int t) const {
    float best = -math::infinity<float>();
    for (std::int64_t first = 0; first < op.length; first += part()) {
      const int end = end_of_part(first);
      float x[kHeld][kIns][4];
      load<1>(row, first, t, x);
      EPWEAVE_UNROLL_ON_GPU
      for (int k = 0; k < kAtOnce; ++k) {
        EPWEAVE_UNROLL_ON_GPU
        for (int q = 0; q < 4; ++q)
          if (place(t, k) + q < end && x[k][0][q] > best) best = x[k][0][q];
      }
    }
    return best;
  }
  EPWEAVE_HD static float largest(const float* x, int count, int stride) {
    float best = -math::infinity<float>();
    for (int i = 0; i < count; i += stride)
      if (x[i] > best) best = x[i];
    return best;
  }
  // Zeros of both signs are equal: the first one in the row.
  EPWEAVE_HD float largest_of_row(std::int64_t row, const float* of_lanes) const {
    const float best = largest(of_lanes, kLanes, 1);
    if (best != 0.0f) return best;
    for (std::int64_t j = 0;; ++j) {
      float x[4];
      in[0].load(row, j, j + 1, x);
      if (x[0] == 0.0f) return x[0];
    }
  }

  EPWEAVE_HD void make_terms(std::int64_t row, std::int64_t tile_number, int t, RowFacts facts,
                             RowPlace::Floats* to) const {
    op.start(row, facts);
    EPWEAVE_NO_UNROLL
    for (int taken = 0; taken < kFours; taken += kAtOnce) {
      const std::int64_t first = tile_number * tile() + taken / kAtOnce * part();
      const int end = end_of_part(first);
      float x[kHeld][kIns][4];
      load<Op::kTermInputs>(row, first, t, x);
      EPWEAVE_UNROLL_ON_GPU
      for (int k = 0; k < kAtOnce; ++k) {
        RowPlace::Floats terms;
        EPWEAVE_UNROLL_ON_GPU
        for (int q = 0; q < 4; ++q) {
          float of_element[kIns];
          pick(x[k], Op::kTermInputs, q, of_element);
          terms.at[q] = place(t, k) + q < end ? Op::term(of_element, facts) : 0.0f;
        }
        to[((taken + k) << thread_bits) + t] = terms;
      }
    }
  }
  EPWEAVE_HD void add_terms(std::int64_t tile_number, int lane, const float* terms,
                            float& sum_of_lane) const {
    const std::int64_t left = op.length - tile_number * tile();
    const int count = static_cast<int>(left < tile() ? left : tile());
    float sum = tile_number == 0 ? 0.0f : sum_of_lane;
    constexpr int kTaken = 16;
    int j = lane;
    for (; j + (kTaken - 1) * kLanes < count; j += kTaken * kLanes) {
      float taken[static_cast<std::size_t>(kTaken)];
      EPWEAVE_UNROLL_ON_GPU
      for (int k = 0; k < kTaken; ++k) taken[k] = terms[j + k * kLanes];
      EPWEAVE_UNROLL_ON_GPU
      for (int k = 0; k < kTaken; ++k) sum = sum + taken[k];
    }
    for (; j < count; j += kLanes) sum = sum + terms[j];
    sum_of_lane = sum;
  }
  EPWEAVE_HD void make_results(std::int64_t row, int t, RowFacts facts) const {
    for (std::int64_t first = 0; first < op.length; first += part()) {
      const int end = end_of_part(first);
      float x[kHeld][kIns][4];
      load<Op::kInputs>(row, first, t, x);
      EPWEAVE_UNROLL_ON_GPU
      for (int k = 0; k < kAtOnce; ++k) {
        if (place(t, k) >= end) continue;
        float results[4];
        EPWEAVE_UNROLL_ON_GPU
        for (int q = 0; q < 4; ++q) {
          float of_element[kIns];
          pick(x[k], Op::kInputs, q, of_element);
          results[q] = Op::result(of_element, facts);
        }
        out.store(row, first + place(t, k), op.length, results);
      }
    }
  }
};

// ---- columns ------------------------------------------------------------------------------

struct ColumnSum {
  static constexpr int kInputs = 1;
  EPWEAVE_HD float term(const float* in, std::int64_t) const { return in[0]; }
};
// grad * (x * scale of the row); inputs: the gradient, x.
struct RmsNormWeightGradient {
  static constexpr int kInputs = 2;
  const float* scales;
  EPWEAVE_HD float term(const float* in, std::int64_t row) const { return in[0] * (in[1] * scales[row]); }
};

// lanes[16 c + l] = the sum of the terms of rows l, l + 16, ... of column c. Inputs of one dtype.
// Index: l * columns + c.
template <class Op>
struct ColumnLanesTask {
  static constexpr std::size_t kIns = Op::kInputs;
  std::int64_t rows, columns;
  float* lanes;
  Op op;
  RowPlace in[kIns];

  EPWEAVE_HD void run(std::int64_t i) const {
    if (in[0].stored == Stored::kFloat32) return run_as<Stored::kFloat32>(i);
    if (in[0].stored == Stored::kBfloat16) return run_as<Stored::kBfloat16>(i);
    run_as<Stored::kFloat16>(i);
  }

 private:
  template <Stored kStored>
  EPWEAVE_HD void run_as(std::int64_t i) const {
    const std::int64_t lane = i / columns, column = i % columns;
    constexpr int kTaken = 8;
    float sum = 0.0f;
    std::int64_t row = lane;
    for (; row + (kTaken - 1) * math::kLanes < rows; row += kTaken * math::kLanes) {
      float taken[static_cast<std::size_t>(kTaken)][kIns];
      EPWEAVE_UNROLL_ON_GPU
      for (int k = 0; k < kTaken; ++k) load<kStored>(row + k * math::kLanes, column, taken[k]);
      EPWEAVE_UNROLL_ON_GPU
      for (int k = 0; k < kTaken; ++k) sum = sum + op.term(taken[k], row + k * math::kLanes);
    }
    for (; row < rows; row += math::kLanes) {
      float taken[kIns];
      load<kStored>(row, column, taken);
      sum = sum + op.term(taken, row);
    }
    lanes[column * math::kLanes + lane] = sum;
  }
  template <Stored kStored>
  EPWEAVE_HD void load(std::int64_t row, std::int64_t column, float (&to)[kIns]) const {
    using Element = typename StoredElement<kStored>::Type;
    EPWEAVE_UNROLL_ON_GPU
    for (int k = 0; k < Op::kInputs; ++k) {
      const Element element = static_cast<const Element*>(in[k].data)[row * in[k].row_stride + column];
      to[k] = math::load_element<float>(&element, kStored, 0);
    }
  }
};

}  // namespace epweave::replay::tasks
