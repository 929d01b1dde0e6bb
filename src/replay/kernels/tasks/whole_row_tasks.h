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
  // Four elements as they are stored; those of 16 bits are in the first two words.
  using Four = Vector<std::uint32_t, 4>;

  // Fours at j, j + step, ... (multiples of 4): zeros from `length` on. All of them are loaded
  // before any is used: no branch over dtypes lies between.
  template <std::size_t kCount>
  EPWEAVE_HD void fetch(std::int64_t row, std::int64_t j, int step, std::int64_t length,
                        Four (&to)[kCount]) const {
    if (stored == Stored::kFloat32) return fetch_as<std::uint32_t>(row, j, step, length, to);
    fetch_as<std::uint16_t>(row, j, step, length, to);
  }
  // The numbers of a four.
  EPWEAVE_HD void decode(const Four& from, float (&to)[4]) const {
    if (stored == Stored::kFloat32) return decode_as<Stored::kFloat32>(from, to);
    if (stored == Stored::kBfloat16) return decode_as<Stored::kBfloat16>(from, to);
    decode_as<Stored::kFloat16>(from, to);
  }
  // The same of one four.
  EPWEAVE_HD void load(std::int64_t row, std::int64_t j, std::int64_t length, float (&to)[4]) const {
    Four four[1];
    fetch(row, j, 0, length, four);
    decode(four[0], to);
  }
  EPWEAVE_HD void store(std::int64_t row, std::int64_t j, std::int64_t length, const float (&from)[4]) const {
    if (stored == Stored::kFloat32) return store_as<Stored::kFloat32>(row, j, length, from);
    if (stored == Stored::kBfloat16) return store_as<Stored::kBfloat16>(row, j, length, from);
    store_as<Stored::kFloat16>(row, j, length, from);
  }
  EPWEAVE_HD float at(std::int64_t row, std::int64_t j) const {
    return math::load_element<float>(data, stored, row * row_stride + j);
  }

 private:
  template <class Word, std::size_t kCount>
  EPWEAVE_HD void fetch_as(std::int64_t row, std::int64_t j, int step, std::int64_t length,
                           Four (&to)[kCount]) const {
    using V = Vector<Word, 4>;
    const Word* from = static_cast<const Word*>(data) + row * row_stride + j;
    const bool has_vectors = is_aligned<V>(from);
    const std::int64_t left = length - j;
    EPWEAVE_UNROLL
    for (std::size_t k = 0; k < kCount; ++k) {
      const int at = static_cast<int>(k) * step;
      V held{};
      if (has_vectors && at + 4 <= left) {
        held = *reinterpret_cast<const V*>(from + at);
      } else {
        EPWEAVE_UNROLL
        for (int q = 0; q < 4; ++q)
          if (at + q < left) held.at[q] = from[at + q];
      }
      std::memcpy(&to[k], &held, sizeof held);
    }
  }
  template <Stored kStored>
  EPWEAVE_HD static void decode_as(const Four& from, float (&to)[4]) {
    Vector<typename StoredElement<kStored>::Type, 4> held;
    std::memcpy(&held, &from, sizeof held);
    EPWEAVE_UNROLL
    for (int q = 0; q < 4; ++q) to[q] = math::load_element<float>(&held.at[q], kStored, 0);
  }
  template <Stored kStored>
  EPWEAVE_HD void store_as(std::int64_t row, std::int64_t j, std::int64_t length,
                           const float (&from)[4]) const {
    using Element = typename StoredElement<kStored>::Type;
    using V = Vector<Element, 4>;
    Element* to = static_cast<Element*>(data) + row * row_stride + j;
    V held;
    EPWEAVE_UNROLL
    for (int q = 0; q < 4; ++q) math::store_element(&held.at[q], kStored, 0, from[q]);
    if (j + 4 <= length && is_aligned<V>(to)) {
      store_vector(reinterpret_cast<V*>(to), held);
      return;
    }
    EPWEAVE_UNROLL
    for (int q = 0; q < 4; ++q)
      if (j + q < length) to[q] = held.at[q];
  }
};

// What is known of a row: its largest element, and what its sum makes of it.
struct RowFacts {
  float maximum, total;
};

// ---- what is done to a row ----------------------------------------------------------------

// An op has `term` of an element, which is added up, `finish` of the sum, `keep` of what is kept of
// a row, `result` of an element. The first kTermInputs inputs are those of `term`. kIsOfTerm: the
// result is made of the term alone.
struct EachRow {
  static constexpr int kInputs = 1, kTermInputs = 1;
  static constexpr bool kHasMaximum = false, kHasResult = true, kIsOfTerm = false;
  std::int64_t length;

  EPWEAVE_HD void start(std::int64_t, RowFacts&) const {}
  EPWEAVE_HD void finish(float total, RowFacts& row) const { row.total = total; }
  EPWEAVE_HD void keep(std::int64_t, const RowFacts&) const {}
};

struct SoftmaxForward : EachRow {
  static constexpr bool kHasMaximum = true;
  EPWEAVE_HD static float term(const float* x, const RowFacts& row) { return math::exp(x[0] - row.maximum); }
};
struct SoftmaxRow : SoftmaxForward {
  static constexpr bool kIsOfTerm = true;
  EPWEAVE_HD static float result(const float* term, const RowFacts& row) { return term[0] / row.total; }
};
struct LogSoftmaxRow : SoftmaxForward {
  EPWEAVE_HD void finish(float total, RowFacts& row) const { row.total = math::log(total); }
  EPWEAVE_HD static float result(const float* x, const RowFacts& row) {
    return x[0] - row.maximum - row.total;
  }
};

// Inputs: the gradient, the softmax.
struct SoftmaxBackwardRow : EachRow {
  static constexpr int kInputs = 2, kTermInputs = 2;
  EPWEAVE_HD static float term(const float* in, const RowFacts&) { return in[0] * in[1]; }
  EPWEAVE_HD static float result(const float* in, const RowFacts& row) { return (in[0] - row.total) * in[1]; }
};
struct LogSoftmaxBackwardRow : EachRow {
  static constexpr int kInputs = 2;
  EPWEAVE_HD static float term(const float* in, const RowFacts&) { return in[0]; }
  EPWEAVE_HD static float result(const float* in, const RowFacts& row) {
    return in[0] - math::exp(in[1]) * row.total;
  }
};

// Inputs: x, the weight.
struct RmsNormRow : EachRow {
  static constexpr int kInputs = 2;
  float* scales;  // by row: 1 / sqrt(mean of squares + epsilon)
  float epsilon;

  EPWEAVE_HD static float term(const float* in, const RowFacts&) { return in[0] * in[0]; }
  EPWEAVE_HD void finish(float total, RowFacts& row) const {
    const float mean = total / static_cast<float>(length);
    row.total = math::rsqrt(math::AddScaled::apply(1.0f, mean, epsilon));
  }
  EPWEAVE_HD void keep(std::int64_t r, const RowFacts& row) const { scales[r] = row.total; }
  EPWEAVE_HD static float result(const float* in, const RowFacts& row) { return in[0] * row.total * in[1]; }
};
// Inputs: the gradient, x, the weight.
struct RmsNormBackwardRow : EachRow {
  static constexpr int kInputs = 3, kTermInputs = 3;
  const float* scales;

  // `maximum` holds the scale.
  EPWEAVE_HD void start(std::int64_t r, RowFacts& row) const { row.maximum = scales[r]; }
  EPWEAVE_HD static float term(const float* in, const RowFacts& row) {
    return in[0] * in[2] * (in[1] * row.maximum);
  }
  EPWEAVE_HD void finish(float total, RowFacts& row) const { row.total = total / static_cast<float>(length); }
  EPWEAVE_HD static float result(const float* in, const RowFacts& row) {
    return row.maximum * (in[0] * in[2] - in[1] * row.maximum * row.total);
  }
};

// The sum itself, divided by `divisor` where that is not 0.
struct RowSum : EachRow {
  static constexpr bool kHasResult = false;
  float* out;  // by row
  float divisor;

  EPWEAVE_HD static float term(const float* in, const RowFacts&) { return in[0]; }
  EPWEAVE_HD void finish(float total, RowFacts& row) const {
    row.total = divisor == 0.0f ? total : total / divisor;
  }
  EPWEAVE_HD void keep(std::int64_t r, const RowFacts& row) const { out[r] = row.total; }
};

// ---- the rows -----------------------------------------------------------------------------

// `in` and `out` over `rows` rows of op.length elements, which is not 0. An index is a block of
// threads, for kThreads >> thread_bits rows. A block goes through `steps()` steps; each of its
// threads has done one before any begins the next.
template <class Op>
struct WholeRowTask {
  static constexpr int kThreads = 256, kLanes = static_cast<int>(math::kLanes);
  static constexpr int kLeastBits = 4, kMostBits = 8;  // of the threads of a row
  static constexpr int kMostRows = kThreads >> kLeastBits;
  static constexpr int kBlocks =
      Op::kInputs > 1 || Op::kHasMaximum ? 3 : 4;             // that a multiprocessor holds at least
  static constexpr int kFours = Op::kTermInputs > 1 ? 2 : 4;  // of a tile that a thread makes
  static constexpr std::size_t kHeld = kFours, kIns = Op::kInputs;

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

  // Threads for each of `rows` rows of `length` elements. 16 of them add up: the fewer a row has,
  // the more of a block add up. But elements that are read again should still lie in the cache
  // then, so rows with results have two tiles at most; and the GPU should have threads enough.
  static int bits_for(std::int64_t length, std::int64_t rows) {
    constexpr std::int64_t kFull = kMultiprocessors * kBlocks * kThreads;
    constexpr int kMostOfSum = 6;
    const int most = bits_of_tiles(length, 1);
    int bits = Op::kHasResult ? bits_of_tiles(length, 2) : most < kMostOfSum ? most : kMostOfSum;
    while (bits < most && rows < kFull >> bits) ++bits;
    return bits;
  }
  std::int64_t blocks() const {
    const std::int64_t of_block = kThreads >> thread_bits;
    return (rows + of_block - 1) / of_block;
  }
  EPWEAVE_HD std::int64_t steps() const { return kSumsFrom + tiles() + 2; }
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
    RowFacts facts = shared.facts[local];
    op.start(row, facts);
    if (sums <= all) {
      if (sums < all) make_terms(row, sums, t, facts, terms_of(sums, local, shared));
      if (sums > 0 && t < kLanes)
        add_terms(sums - 1, t, &terms_of(sums - 1, local, shared)->at[0], shared.lanes[local][t]);
      return;
    }
    op.finish(total_of(shared.lanes[local]), facts);
    if (t == 0) op.keep(row, facts);
    if constexpr (Op::kHasResult) {
      EPWEAVE_NO_UNROLL
      for (std::int64_t tile_number = 0; tile_number < all; ++tile_number) {
        if (Op::kIsOfTerm && all <= 2)
          make_of_terms(row, tile_number, t, facts, terms_of(tile_number, local, shared));
        else
          make_of_inputs(row, tile_number, t, facts);
      }
    }
  }

 private:
  static constexpr int kSumsFrom = Op::kHasMaximum ? 3 : 0;
  struct Fours {
    RowPlace::Four of[kIns][kHeld];  // by input
  };

  // The least threads that make rows of `length` elements in so many tiles, if there are as many.
  static int bits_of_tiles(std::int64_t length, std::int64_t tiles) {
    int bits = kLeastBits;
    while (bits < kMostBits && (tiles * kFours * 4 << bits) < length) ++bits;
    return bits;
  }
  EPWEAVE_HD std::int64_t tile() const { return std::int64_t{kFours * 4} << thread_bits; }
  EPWEAVE_HD std::int64_t tiles() const { return (op.length + tile() - 1) / tile(); }
  // How many elements a tile has.
  EPWEAVE_HD int count_of(std::int64_t tile_number) const {
    const std::int64_t left = op.length - tile_number * tile();
    return static_cast<int>(left < tile() ? left : tile());
  }
  // In a tile: the four k of a thread, and its first element.
  EPWEAVE_HD int four_of(int t, int k) const { return (k << thread_bits) + t; }
  EPWEAVE_HD int place(int t, int k) const { return four_of(t, k) * 4; }
  // Where the terms of a tile of a row are, until those of the tile after the next one.
  EPWEAVE_HD RowPlace::Floats* terms_of(std::int64_t tile_number, int local, Shared& shared) const {
    return &shared.tiles[tile_number % 2][(local << thread_bits) * kFours];
  }

  template <int kCount>
  EPWEAVE_HD void fetch(std::int64_t row, std::int64_t tile_number, int t, Fours& fours) const {
    EPWEAVE_UNROLL
    for (int i = 0; i < kCount; ++i)
      in[i].fetch(row, tile_number * tile() + place(t, 0), 4 << thread_bits, op.length, fours.of[i]);
  }
  // Of the thread's four k: the inputs of element q are to[q].
  template <int kCount>
  EPWEAVE_HD void decode(const Fours& fours, int k, float (&to)[4][kIns]) const {
    EPWEAVE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      float x[4];
      in[i].decode(fours.of[i][k], x);
      EPWEAVE_UNROLL
      for (int q = 0; q < 4; ++q) to[q][i] = x[q];
    }
  }

  // NaN is skipped.
  EPWEAVE_HD float largest_of_thread(std::int64_t row, int t) const {
    float best = -math::infinity<float>();
    EPWEAVE_NO_UNROLL
    for (std::int64_t number = 0; number < tiles(); ++number) {
      Fours fours;
      fetch<1>(row, number, t, fours);
      const int end = count_of(number);
      EPWEAVE_UNROLL
      for (int k = 0; k < kFours; ++k) {
        float x[4][kIns];
        decode<1>(fours, k, x);
        EPWEAVE_UNROLL
        for (int q = 0; q < 4; ++q)
          if (place(t, k) + q < end && x[q][0] > best) best = x[q][0];
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
    for (std::int64_t j = 0;; ++j)
      if (const float x = in[0].at(row, j); x == 0.0f) return x;
  }

  EPWEAVE_HD void make_terms(std::int64_t row, std::int64_t tile_number, int t, const RowFacts& facts,
                             RowPlace::Floats* to) const {
    Fours fours;
    fetch<Op::kTermInputs>(row, tile_number, t, fours);
    const int end = count_of(tile_number);
    EPWEAVE_UNROLL
    for (int k = 0; k < kFours; ++k) {
      float x[4][kIns];
      decode<Op::kTermInputs>(fours, k, x);
      RowPlace::Floats terms;
      EPWEAVE_UNROLL
      for (int q = 0; q < 4; ++q) terms.at[q] = place(t, k) + q < end ? Op::term(x[q], facts) : 0.0f;
      to[four_of(t, k)] = terms;
    }
  }
  // Terms are read while those before are added.
  EPWEAVE_HD void add_terms(std::int64_t tile_number, int lane, const float* terms,
                            float& sum_of_lane) const {
    constexpr int kTaken = 8, kStep = kTaken * kLanes;
    const int count = count_of(tile_number);
    const auto read = [&](int j, float(&to)[static_cast<std::size_t>(kTaken)]) {
      EPWEAVE_UNROLL
      for (int k = 0; k < kTaken; ++k) to[k] = terms[j + k * kLanes];
    };
    float sum = tile_number == 0 ? 0.0f : sum_of_lane;
    int j = lane;
    float taken[static_cast<std::size_t>(kTaken)] = {};
    if (count >= kStep) read(j, taken);
    for (int left = count / kStep; left > 0; --left) {
      float next[static_cast<std::size_t>(kTaken)] = {};
      if (left > 1) read(j + kStep, next);
      EPWEAVE_UNROLL
      for (int k = 0; k < kTaken; ++k) sum = sum + taken[k];
      EPWEAVE_UNROLL
      for (int k = 0; k < kTaken; ++k) taken[k] = next[k];
      j += kStep;
    }
    for (; j < count; j += kLanes) sum = sum + terms[j];
    sum_of_lane = sum;
  }
  EPWEAVE_HD static float total_of(const float (&of_lanes)[static_cast<std::size_t>(kLanes)]) {
    float lanes[static_cast<std::size_t>(kLanes)];
    EPWEAVE_UNROLL
    for (int l = 0; l < kLanes; ++l) lanes[l] = of_lanes[l];
    return math::add_lanes(lanes);
  }

  EPWEAVE_HD void make_of_terms(std::int64_t row, std::int64_t tile_number, int t, const RowFacts& facts,
                                const RowPlace::Floats* terms) const {
    EPWEAVE_NO_UNROLL
    for (int k = 0; k < kFours; ++k) {
      const RowPlace::Floats four = terms[four_of(t, k)];
      float results[4];
      EPWEAVE_UNROLL
      for (int q = 0; q < 4; ++q) {
        const float of_element[kIns] = {four.at[q]};
        results[q] = Op::result(of_element, facts);
      }
      out.store(row, tile_number * tile() + place(t, k), op.length, results);
    }
  }
  EPWEAVE_HD void make_of_inputs(std::int64_t row, std::int64_t tile_number, int t,
                                 const RowFacts& facts) const {
    Fours fours;
    fetch<Op::kInputs>(row, tile_number, t, fours);
    EPWEAVE_UNROLL
    for (int k = 0; k < kFours; ++k) {
      float x[4][kIns], results[4];
      decode<Op::kInputs>(fours, k, x);
      EPWEAVE_UNROLL
      for (int q = 0; q < 4; ++q) {
        if constexpr (Op::kIsOfTerm) x[q][0] = Op::term(x[q], facts);
        results[q] = Op::result(x[q], facts);
      }
      out.store(row, tile_number * tile() + place(t, k), op.length, results);
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

// lanes[(c * tiles + t) * 16 + l] = the sum of the terms of rows l, l + 16, ... of tile t of column
// c. Inputs of one dtype. Index: columns (16 t + l) + c.
template <class Op>
struct ColumnLanesTask {
  static constexpr std::size_t kIns = Op::kInputs;
  std::int64_t rows, columns, tiles;
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
    const std::int64_t place = i / columns, column = i % columns;
    const std::int64_t first = place / math::kLanes * math::kSumTile,
                       end = math::end_of_sum_tile(first, rows);
    constexpr int kTaken = 8;
    float sum = 0.0f;
    std::int64_t row = first + place % math::kLanes;
    for (; row + (kTaken - 1) * math::kLanes < end; row += kTaken * math::kLanes) {
      float taken[static_cast<std::size_t>(kTaken)][kIns];
      EPWEAVE_UNROLL
      for (int k = 0; k < kTaken; ++k) load<kStored>(row + k * math::kLanes, column, taken[k]);
      EPWEAVE_UNROLL
      for (int k = 0; k < kTaken; ++k) sum = sum + op.term(taken[k], row + k * math::kLanes);
    }
    for (; row < end; row += math::kLanes) {
      float taken[kIns];
      load<kStored>(row, column, taken);
      sum = sum + op.term(taken, row);
    }
    lanes[column * tiles * math::kLanes + place] = sum;
  }
  template <Stored kStored>
  EPWEAVE_HD void load(std::int64_t row, std::int64_t column, float (&to)[kIns]) const {
    using Element = typename StoredElement<kStored>::Type;
    EPWEAVE_UNROLL
    for (int k = 0; k < Op::kInputs; ++k) {
      const Element element = static_cast<const Element*>(in[k].data)[row * in[k].row_stride + column];
      to[k] = math::load_element<float>(&element, kStored, 0);
    }
  }
};

}  // namespace epweave::replay::tasks
