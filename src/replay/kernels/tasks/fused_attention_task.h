// Attention of native math: its products are those of tensor cores, and scores stay in registers.
//
// A block of 4 warps makes 64 rows of a result: outputs, or gradients of queries, from 64 or 32
// keys at a time; or gradients of keys and values, from 32 or 16 queries at a time. So nothing is
// added up by atomics. What a row holds depends on its own operands and on the other side's, which
// are taken in ascending order: not on which other rows there are.
//
// The code is that of a whole warp. `Warp` is one of a GPU (cuda/warp.cuh), whose thread does its
// own lane's part, or its model on the CPU (device/emulated_warp.h), which does all 32:
//
//   warp.each([&](int lane, Registers& r) {..})     what each lane does for itself
//   warp.load_matrices<kTransposed>(from, to)       ldmatrix .x4 [.trans]: from(lane) is a row's address, to(r) 4 registers
//   warp.multiply<kStored>(c, a, b)                 c += a b by mma.sync.m16n8k16, accumulated in float32
//   warp.take_largest(of), warp.add_up(of)          of(r) of the four lanes that hold a row of c
//
// Lane l holds, of c, the elements 2 (l % 4) and the next one of the rows l / 4 and l / 4 + 8 (PTX,
// "Matrix Fragments for mma.m16n8k16"). So c, rounded, is an operand a of the next product. C++17.
#pragma once

#include <cstring>

#include "replay/kernels/tasks/attention_tasks.h"
#include "replay/kernels/tasks/vector_tasks.h"

namespace epweave::replay::tasks {

// What the kernels below have in common: one batch, some heads, all queries.
struct FusedAttention {
  PairRules rules;
  HeadRows query, key, value;  // from the first head on; the elements of a row side by side
  std::int64_t heads, share;   // `share` heads in a row use the same head of keys
  std::int64_t depth, value_depth;
  float scale;
  bool has_vectors;  // all rows of operands begin at a multiple of 16 bytes and have whole vectors
  double unit;       // of logarithms and maxima, the natural logarithm having 1
};

// Which pairs of a tile count.
struct TilePairs {
  enum class Kind : std::uint8_t { kNone, kSome, kAll };
  Kind kind;
  bool is_in_one_block, is_masked;  // of kSome: of the tables; by bits, if in one block
};

struct FusedTiles {
  static constexpr int kThreads = 128, kWarps = 4, kRows = 64;
  // Rows of 16-bit elements in shared memory. 16 bytes more than a row has: eight rows of a matrix
  // lie in different banks.
  template <int kCount, int kWidth>
  using Tile = std::uint16_t[static_cast<std::size_t>(kCount)][static_cast<std::size_t>(kWidth + 8)];
  static constexpr float kLog2E = 1.44269502162933349609375f;
  static constexpr double kLn2 = 0.693147180559945309417;

  // 64 bits are divided by a function that takes registers.
  EPWEAVE_HD static std::uint32_t small(std::int64_t number) {
    return static_cast<std::uint32_t>(number < 0x7fffffff ? number : 0x7fffffff);
  }
  EPWEAVE_HD static int tiles(std::int64_t extent, int tile) {
    return static_cast<int>((small(extent) + static_cast<std::uint32_t>(tile) - 1) /
                            static_cast<std::uint32_t>(tile));
  }

  // Of the queries [query, query + count_q) and the keys [key, key + count_k).
  EPWEAVE_HD static TilePairs pairs_of(const PairRules& rules, int head, int query, int count_q, int key,
                                       int count_k) {
    const int queries = static_cast<int>(rules.queries), keys = static_cast<int>(rules.keys);
    const int last_q = (query + count_q < queries ? query + count_q : queries) - 1,
              last_k = (key + count_k < keys ? key + count_k : keys) - 1;
    bool all = last_q == query + count_q - 1 && last_k == key + count_k - 1;
    if (rules.is_causal) {
      if (key > rules.first_query + last_q) return {TilePairs::Kind::kNone, false, false};
      all = all && last_k <= rules.first_query + query;
    }
    const std::uint32_t q_block = small(rules.q_block), k_block = small(rules.k_block);
    const int first_qb = block_at(query, q_block), last_qb = block_at(last_q, q_block),
              first_kb = block_at(key, k_block), last_kb = block_at(last_k, k_block);
    bool any = false, is_masked = false;
    EPWEAVE_NO_UNROLL
    for (int qb = first_qb; qb <= last_qb; ++qb) {
      const std::uint8_t* blocks = rules.cover + (head * rules.q_blocks + qb) * rules.k_blocks;
      EPWEAVE_NO_UNROLL
      for (int kb = first_kb; kb <= last_kb; ++kb) {
        any = any || blocks[kb] != 0;
        is_masked = is_masked || (blocks[kb] == 1 && rules.mask != nullptr);
        all = all && blocks[kb] != 0;
      }
    }
    if (!any) return {TilePairs::Kind::kNone, false, false};
    if (all && !is_masked) return {TilePairs::Kind::kAll, true, false};
    return {TilePairs::Kind::kSome, first_qb == last_qb && first_kb == last_kb, is_masked};
  }
  EPWEAVE_HD static bool counts(const PairRules& rules, const TilePairs& tile, int head, int query, int key) {
    if (query >= rules.queries || key >= rules.keys) return false;
    if (rules.is_causal && key > rules.first_query + query) return false;
    bool is_masked = tile.is_masked;
    if (!tile.is_in_one_block) {
      const std::uint8_t block =
          rules.cover[(head * rules.q_blocks + block_at(query, small(rules.q_block))) * rules.k_blocks +
                      block_at(key, small(rules.k_block))];
      if (block == 0) return false;
      is_masked = block == 1 && rules.mask != nullptr;
    }
    if (!is_masked) return true;
    return (rules.mask[head * rules.mask_of_head + query * rules.mask_of_query + key / 32] >> (key % 32) &
            1u) != 0;
  }

  // Rows [first, first + kCount) of a head to shared memory; zeros beyond `rows` and `length`.
  template <int kCount, int kWidth>
  EPWEAVE_HD static void load_rows(const HeadRows& from, std::int64_t head, int first, std::int64_t rows,
                                   std::int64_t length, bool has_vectors, int thread,
                                   Tile<kCount, kWidth>& to) {
    const auto* data = static_cast<const std::uint16_t*>(from.data) + head * from.strides[1];
    const int last = static_cast<int>(rows) - first, width = static_cast<int>(length);
    constexpr int kVectors = kWidth / 8, kEach = kCount * kVectors / kThreads;
    static_assert(kEach * kThreads == kCount * kVectors);
    if (has_vectors) {
      Bytes16 held[static_cast<std::size_t>(kEach)];
      EPWEAVE_UNROLL
      for (int i = 0; i < kEach; ++i) {
        const int at = thread + i * kThreads, row = at / kVectors, column = at % kVectors * 8;
        held[i] = {};
        if (row < last && column < width)
          held[i] = *static_cast<const Bytes16*>(
              static_cast<const void*>(data + (first + row) * from.strides[2] + column));
      }
      EPWEAVE_UNROLL
      for (int i = 0; i < kEach; ++i) {
        const int at = thread + i * kThreads;
        store_bytes(&to[at / kVectors][at % kVectors * 8], held[i]);
      }
      return;
    }
    EPWEAVE_NO_UNROLL
    for (int at = thread; at < kCount * kWidth; at += kThreads) {
      const int row = at / kWidth, column = at % kWidth;
      to[row][column] =
          row < last && column < width ? data[(first + row) * from.strides[2] + column] : std::uint16_t{0};
    }
  }

  // Where lane `lane` finds its row of four matrices of 8 x 8 of `tile` at (row, column): those of
  // an operand a of 16 rows and 16 steps; of two operands b of 16 steps, whose columns are the
  // tile's rows; the same, whose steps are the tile's rows (transposed).
  template <class Rows>
  EPWEAVE_HD static const std::uint16_t* at_left(const Rows& tile, int row, int column, int lane) {
    return &tile[row + lane % 16][column + lane / 16 * 8];
  }
  template <class Rows>
  EPWEAVE_HD static const std::uint16_t* at_right(const Rows& tile, int row, int column, int lane) {
    return &tile[row + lane % 8 + lane / 16 * 8][column + lane / 8 % 2 * 8];
  }
  template <class Rows>
  EPWEAVE_HD static const std::uint16_t* at_right_steps(const Rows& tile, int row, int column, int lane) {
    return &tile[row + lane % 16][column + lane / 16 * 8];
  }

  // c[j] += left right^T: 16 rows of `left` from `row` on, 8 rows of `right` for each of kTiles.
  template <Stored kStored, int kTiles, int kSteps, class Warp, class Left, class Right, class Of>
  EPWEAVE_HD static void multiply_rows(Warp& warp, const Left& left, int row, const Right& right, Of c) {
    using Registers = typename Warp::Registers;
    EPWEAVE_UNROLL_BY_2
    for (int step = 0; step < kSteps; step += 16) {
      warp.template load_matrices<false>([&](int lane) { return at_left(left, row, step, lane); },
                                         [](Registers& r) { return r.a; });
      EPWEAVE_UNROLL
      for (int j = 0; j < kTiles; j += 2) {
        warp.template load_matrices<false>([&](int lane) { return at_right(right, j * 8, step, lane); },
                                           [](Registers& r) { return r.b; });
        multiply_pair<kStored>(warp, j, c);
      }
    }
  }
  // c[j] += weights rows: `weights` are of kSteps columns, 8 in each of its tiles.
  template <Stored kStored, int kTiles, int kSteps, class Warp, class Rows, class Weights, class Of>
  EPWEAVE_HD static void multiply_weights(Warp& warp, Weights weights, const Rows& rows, Of c) {
    using Registers = typename Warp::Registers;
    EPWEAVE_UNROLL
    for (int step = 0; step < kSteps; step += 16) {
      warp.each([&](int, Registers& r) {
        const float(&first)[4] = weights(r)[step / 8], (&second)[4] = weights(r)[step / 8 + 1];
        r.a[0] = Warp::template pack<kStored>(first[0], first[1]);
        r.a[1] = Warp::template pack<kStored>(first[2], first[3]);
        r.a[2] = Warp::template pack<kStored>(second[0], second[1]);
        r.a[3] = Warp::template pack<kStored>(second[2], second[3]);
      });
      EPWEAVE_UNROLL
      for (int j = 0; j < kTiles; j += 2) {
        warp.template load_matrices<true>([&](int lane) { return at_right_steps(rows, step, j * 8, lane); },
                                          [](Registers& r) { return r.b; });
        multiply_pair<kStored>(warp, j, c);
      }
    }
  }
  template <Stored kStored, class Warp, class Of>
  EPWEAVE_HD static void multiply_pair(Warp& warp, int j, Of c) {
    using Registers = typename Warp::Registers;
    EPWEAVE_UNROLL
    for (int k = 0; k < 2; ++k)
      warp.template multiply<kStored>([&](Registers& r) { return c(r)[j + k]; },
                                      [](Registers& r) { return r.a; },
                                      [&](Registers& r) { return r.b + 2 * k; });
  }

  // Where the lane's element `e` of tile j of c is, from the tile's first.
  EPWEAVE_HD static int row_at(int lane, int e) { return lane / 4 + e / 2 * 8; }
  EPWEAVE_HD static int column_at(int lane, int j, int e) { return j * 8 + lane % 4 * 2 + e % 2; }

  // Which of the lane's elements of c count, as far as `counts` of row and column says: a bit for
  // each of 4 in a tile. Kept apart from what is unrolled: few tiles need it.
  template <int kTiles, class Counts>
  EPWEAVE_HD static std::uint32_t find_kept(const TilePairs& pairs, int lane, Counts counts) {
    static_assert(kTiles <= 8);
    std::uint32_t kept = ~0u;
    if (pairs.kind == TilePairs::Kind::kAll) return kept;
    EPWEAVE_NO_UNROLL
    for (int i = 0; i < 4 * kTiles; ++i)
      if (!counts(row_at(lane, i % 4), column_at(lane, i / 4, i % 4))) kept &= ~(1u << i);
    return kept;
  }

  // Stores rows of results, `factors(r, h)` times c, h being the half of 8 rows.
  template <Stored kStored, int kTiles, class Warp, class Of, class Factors>
  EPWEAVE_HD static void store_rows(Warp& warp, const HeadRows& to, std::int64_t head, int first,
                                    std::int64_t rows, std::int64_t length, Of c, Factors factors) {
    using Registers = typename Warp::Registers;
    warp.each([&](int lane, Registers& r) {
      EPWEAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int row = first + row_at(lane, 2 * h);
        if (row >= rows) continue;
        const std::int64_t base = head * to.strides[1] + row * to.strides[2];
        const float factor = factors(r, h);
        auto* const data = static_cast<std::uint16_t*>(const_cast<void*>(to.data));
        EPWEAVE_UNROLL
        for (int j = 0; j < kTiles; ++j) {
          const std::uint32_t pair =
              Warp::template pack<kStored>(c(r)[j][2 * h] * factor, c(r)[j][2 * h + 1] * factor);
          const int column = column_at(lane, j, 0);
          const std::int64_t at = base + column * to.strides[3];
          if (column < length) data[at] = static_cast<std::uint16_t>(pair);
          if (column + 1 < length) data[at + to.strides[3]] = static_cast<std::uint16_t>(pair >> 16);
        }
      }
    });
  }

 private:
  EPWEAVE_HD static int block_at(int place, std::uint32_t block) {
    return static_cast<int>(static_cast<std::uint32_t>(place) / block);
  }
  // 16 bytes at a multiple of 16. The CPU's compiler wants to see that elements are written.
  EPWEAVE_HD static void store_bytes(std::uint16_t* to, const Bytes16& bytes) {
#if defined(__CUDA_ARCH__)
    *reinterpret_cast<Bytes16*>(to) = bytes;
#else
    std::memcpy(to, &bytes, sizeof bytes);
#endif
  }
};

// Outputs, and of each row the logarithm of the sum of exp(score), and the largest score.
template <Stored kStored, int kDepth, int kValueDepth>
struct FusedForwardTask : FusedTiles {
  static constexpr int kBlocks = 2, kColumns = 64, kTiles = kColumns / 8, kOuts = kValueDepth / 8;

  FusedAttention problem;
  HeadRows out;
  float *lse, *maximum;  // of each row of the slab, in units; the latter may be null

  struct Part {
    int head, row;
  };
  struct Shared {
    alignas(16) Tile<kRows, kDepth> query;
    alignas(16) Tile<kColumns, kDepth> key;
    alignas(16) Tile<kColumns, kValueDepth> value;
  };
  struct Registers {
    float out[static_cast<std::size_t>(kOuts)][4], scores[static_cast<std::size_t>(kTiles)][4];
    float maximum[2], sum[2], largest[2];  // of scores in units of log 2; of exp2(score - maximum)
    std::uint32_t a[4], b[4];
  };

  EPWEAVE_HD std::int64_t blocks() const { return problem.heads * tiles(problem.rules.queries, kRows); }
  // Causal rows grow: the longest first.
  EPWEAVE_HD Part part_of(std::uint32_t block) const {
    const std::uint32_t heads = small(problem.heads);
    const int tile = tiles(problem.rules.queries, kRows) - 1 - static_cast<int>(block / heads);
    return {static_cast<int>(block % heads), tile * kRows};
  }
  EPWEAVE_HD int chunks(const Part&) const { return tiles(problem.rules.keys, kColumns); }
  EPWEAVE_HD TilePairs pairs(const Part& part, int chunk) const {
    return pairs_of(problem.rules, part.head, part.row, kRows, chunk * kColumns, kColumns);
  }

  EPWEAVE_HD void start(const Part& part, int thread, Shared& shared) const {
    load_rows<kRows, kDepth>(problem.query, part.head, part.row, problem.rules.queries, problem.depth,
                             problem.has_vectors, thread, shared.query);
  }
  EPWEAVE_HD void load(const Part& part, int chunk, int thread, Shared& shared) const {
    const std::int64_t head = part.head / static_cast<int>(problem.share), keys = problem.rules.keys;
    load_rows<kColumns, kDepth>(problem.key, head, chunk * kColumns, keys, problem.depth, problem.has_vectors,
                                thread, shared.key);
    load_rows<kColumns, kValueDepth>(problem.value, head, chunk * kColumns, keys, problem.value_depth,
                                     problem.has_vectors, thread, shared.value);
  }

  template <class Warp>
  EPWEAVE_HD void begin(const Part&, Warp& warp) const {
    warp.each([](int, Registers& r) {
      EPWEAVE_UNROLL
      for (int j = 0; j < kOuts; ++j) {
        EPWEAVE_UNROLL
        for (int e = 0; e < 4; ++e) r.out[j][e] = 0.0f;
      }
      EPWEAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        r.maximum[h] = -math::infinity<float>();
        r.sum[h] = 0.0f;
      }
    });
  }

  template <class Warp>
  EPWEAVE_HD void compute(const Part& part, int chunk, const TilePairs& pairs, Warp& warp,
                          const Shared& shared) const {
    const int row = warp.number() * 16;
    warp.each([](int, Registers& r) {
      EPWEAVE_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        EPWEAVE_UNROLL
        for (int e = 0; e < 4; ++e) r.scores[j][e] = 0.0f;
      }
    });
    multiply_rows<kStored, kTiles, kDepth>(warp, shared.query, row, shared.key,
                                           [](Registers& r) { return r.scores; });
    const float scale = problem.scale * kLog2E;
    warp.each([&](int lane, Registers& r) {
      const std::uint32_t kept = find_kept<kTiles>(pairs, lane, [&](int at_row, int column) {
        return counts(problem.rules, pairs, part.head, part.row + row + at_row, chunk * kColumns + column);
      });
      EPWEAVE_UNROLL
      for (int h = 0; h < 2; ++h) r.largest[h] = -math::infinity<float>();
      EPWEAVE_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        EPWEAVE_UNROLL
        for (int e = 0; e < 4; ++e) {
          float& score = r.scores[j][e];
          score = score * scale;
          if ((kept >> (j * 4 + e) & 1u) == 0) score = -math::infinity<float>();
          float& largest = r.largest[e / 2];
          largest = score > largest ? score : largest;
        }
      }
    });
    EPWEAVE_UNROLL
    for (int h = 0; h < 2; ++h) warp.take_largest([&](Registers& r) { return r.largest + h; });
    warp.each([](int, Registers& r) {
      EPWEAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const float before = r.maximum[h];
        r.maximum[h] = r.largest[h] > before ? r.largest[h] : before;
        const float shift = r.maximum[h] == -math::infinity<float>() ? 0.0f : r.maximum[h];
        const float kept = Warp::exp2(before - shift);
        r.sum[h] = r.sum[h] * kept;
        EPWEAVE_UNROLL
        for (int j = 0; j < kOuts; ++j) {
          EPWEAVE_UNROLL
          for (int e = 2 * h; e < 2 * h + 2; ++e) r.out[j][e] = r.out[j][e] * kept;
        }
        EPWEAVE_UNROLL
        for (int j = 0; j < kTiles; ++j) {
          EPWEAVE_UNROLL
          for (int e = 2 * h; e < 2 * h + 2; ++e) {
            const float weight = Warp::exp2(r.scores[j][e] - shift);
            r.scores[j][e] = weight;
            r.sum[h] = r.sum[h] + weight;
          }
        }
      }
    });
    multiply_weights<kStored, kOuts, kColumns>(
        warp, [](Registers& r) { return r.scores; }, shared.value, [](Registers& r) { return r.out; });
  }

  template <class Warp>
  EPWEAVE_HD void finish(const Part& part, Warp& warp, const Shared&) const {
    EPWEAVE_UNROLL
    for (int h = 0; h < 2; ++h) warp.add_up([&](Registers& r) { return r.sum + h; });
    const int row = part.row + warp.number() * 16;
    const std::int64_t queries = problem.rules.queries;
    store_rows<kStored, kOuts>(
        warp, out, part.head, row, queries, problem.value_depth, [](Registers& r) { return r.out; },
        [](Registers& r, int h) { return r.sum[h] == 0.0f ? 1.0f : 1.0f / r.sum[h]; });
    warp.each([&](int lane, Registers& r) {
      EPWEAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int query = row + row_at(lane, 2 * h);
        if (lane % 4 != 0 || query >= queries) continue;
        const std::int64_t at = part.head * queries + query;
        const double sum = static_cast<double>(r.sum[h]), largest = static_cast<double>(r.maximum[h]) * kLn2;
        const double natural = sum == 0.0 ? -math::infinity<double>() : largest + math::log(sum);
        lse[at] = static_cast<float>(natural / problem.unit);
        if (maximum != nullptr)
          maximum[at] = sum != sum ? r.sum[h] : static_cast<float>(largest / problem.unit);
      }
    });
  }
};

// What the gradients are of: rows of queries, or of keys (and values).
enum class GradientsOf : std::uint8_t { kQueries, kKeys };

// Gradients of the side's rows. Scores and weights are made again from the logarithms; weight *
// (gradient of the weight - delta) is the gradient of a score, but for the scale.
template <Stored kStored, int kDepth, int kValueDepth, GradientsOf kSide>
struct FusedGradientTask : FusedTiles {
  static constexpr bool kOfKeys = kSide == GradientsOf::kKeys;
  // Gradients of wide keys and of values leave registers for fewer scores.
  static constexpr int kBlocks = 2, kColumns = kOfKeys && kDepth > 128 ? 16 : 32, kTiles = kColumns / 8,
                       kQueries = kOfKeys ? kColumns : kRows;
  static constexpr int kFirsts = kDepth / 8, kSeconds = kOfKeys ? kValueDepth / 8 : 1;

  FusedAttention problem;
  HeadRows grad_out;         // of the outputs, as the query
  const float *lse, *delta;  // of each row of the slab; the former in units
  HeadRows first, second;    // gradients: of the query; of key and value

  struct Part {
    int head, row;  // of keys: a head of keys
  };
  // Of query and output gradient, or of key and value, the rows; of the others the columns.
  struct Shared {
    alignas(16) Tile<kRows, kDepth> row_x;
    alignas(16) Tile<kRows, kValueDepth> row_y;
    alignas(16) Tile<kColumns, kDepth> column_x;
    alignas(16) Tile<kColumns, kValueDepth> column_y;
    float lse[static_cast<std::size_t>(kQueries)], delta[static_cast<std::size_t>(kQueries)];
  };
  struct Registers {
    float first[static_cast<std::size_t>(kFirsts)][4], second[static_cast<std::size_t>(kSeconds)][4];
    float scores[static_cast<std::size_t>(kTiles)][4], grads[static_cast<std::size_t>(kTiles)][4];
    std::uint32_t a[4], b[4];
  };

  EPWEAVE_HD std::int64_t rows() const { return kOfKeys ? problem.rules.keys : problem.rules.queries; }
  EPWEAVE_HD std::int64_t columns() const { return kOfKeys ? problem.rules.queries : problem.rules.keys; }
  EPWEAVE_HD std::int64_t row_heads() const {
    return kOfKeys ? small(problem.heads) / small(problem.share) : problem.heads;
  }
  EPWEAVE_HD std::int64_t blocks() const { return row_heads() * tiles(rows(), kRows); }
  // Causal rows of queries grow, those of keys shrink: the longest first.
  EPWEAVE_HD Part part_of(std::uint32_t block) const {
    const std::uint32_t heads = small(row_heads());
    const int place = static_cast<int>(block / heads);
    const int tile = kOfKeys ? place : tiles(rows(), kRows) - 1 - place;
    return {static_cast<int>(block % heads), tile * kRows};
  }
  // Of keys: the queries of the heads that use them, head by head.
  EPWEAVE_HD int chunks(const Part&) const {
    return tiles(columns(), kColumns) * (kOfKeys ? static_cast<int>(problem.share) : 1);
  }
  struct Columns {
    int head, first;  // of queries
  };
  EPWEAVE_HD Columns columns_of(const Part& part, int chunk) const {
    if constexpr (!kOfKeys) return {part.head, chunk * kColumns};
    const auto each = static_cast<std::uint32_t>(tiles(columns(), kColumns)),
               at = static_cast<std::uint32_t>(chunk);
    return {part.head * static_cast<int>(problem.share) + static_cast<int>(at / each),
            static_cast<int>(at % each) * kColumns};
  }
  EPWEAVE_HD TilePairs pairs(const Part& part, int chunk) const {
    const Columns at = columns_of(part, chunk);
    if constexpr (kOfKeys) return pairs_of(problem.rules, at.head, at.first, kColumns, part.row, kRows);
    return pairs_of(problem.rules, at.head, part.row, kRows, at.first, kColumns);
  }

  EPWEAVE_HD void start(const Part& part, int thread, Shared& shared) const {
    if constexpr (kOfKeys)
      load_keys<kRows>(part.head, part.row, thread, shared.row_x, shared.row_y);
    else
      load_queries<kRows>(part.head, part.row, thread, shared.row_x, shared.row_y, shared);
  }
  EPWEAVE_HD void load(const Part& part, int chunk, int thread, Shared& shared) const {
    const Columns at = columns_of(part, chunk);
    if constexpr (kOfKeys)
      load_queries<kColumns>(at.head, at.first, thread, shared.column_x, shared.column_y, shared);
    else
      load_keys<kColumns>(at.head / static_cast<int>(problem.share), at.first, thread, shared.column_x,
                          shared.column_y);
  }

  template <class Warp>
  EPWEAVE_HD void begin(const Part&, Warp& warp) const {
    warp.each([](int, Registers& r) {
      EPWEAVE_UNROLL
      for (int e = 0; e < 4; ++e) {
        EPWEAVE_UNROLL
        for (int j = 0; j < kFirsts; ++j) r.first[j][e] = 0.0f;
        EPWEAVE_UNROLL
        for (int j = 0; j < kSeconds; ++j) r.second[j][e] = 0.0f;
      }
    });
  }

  template <class Warp>
  EPWEAVE_HD void compute(const Part& part, int chunk, const TilePairs& pairs, Warp& warp,
                          const Shared& shared) const {
    const int row = warp.number() * 16;
    const Columns at = columns_of(part, chunk);
    warp.each([](int, Registers& r) {
      EPWEAVE_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        EPWEAVE_UNROLL
        for (int e = 0; e < 4; ++e) r.scores[j][e] = r.grads[j][e] = 0.0f;
      }
    });
    multiply_rows<kStored, kTiles, kDepth>(warp, shared.row_x, row, shared.column_x,
                                           [](Registers& r) { return r.scores; });
    multiply_rows<kStored, kTiles, kValueDepth>(warp, shared.row_y, row, shared.column_y,
                                                [](Registers& r) { return r.grads; });
    const float scale = problem.scale * kLog2E;
    warp.each([&](int lane, Registers& r) {
      const std::uint32_t kept = find_kept<kTiles>(pairs, lane, [&](int at_row, int column) {
        const int in_rows = part.row + row + at_row, in_columns = at.first + column;
        return counts(problem.rules, pairs, at.head, kOfKeys ? in_columns : in_rows,
                      kOfKeys ? in_rows : in_columns);
      });
      EPWEAVE_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        EPWEAVE_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int of_query = kOfKeys ? column_at(lane, j, e) : row + row_at(lane, e);
          const bool is_kept = (kept >> (j * 4 + e) & 1u) != 0;
          const float weight = Warp::exp2(r.scores[j][e] * scale - shared.lse[of_query]);
          r.scores[j][e] = is_kept ? weight : 0.0f;
          r.grads[j][e] = is_kept ? weight * (r.grads[j][e] - shared.delta[of_query]) : 0.0f;
        }
      }
    });
    multiply_weights<kStored, kFirsts, kColumns>(
        warp, [](Registers& r) { return r.grads; }, shared.column_x, [](Registers& r) { return r.first; });
    if constexpr (kOfKeys)
      multiply_weights<kStored, kSeconds, kColumns>(
          warp, [](Registers& r) { return r.scores; }, shared.column_y,
          [](Registers& r) { return r.second; });
  }

  template <class Warp>
  EPWEAVE_HD void finish(const Part& part, Warp& warp, const Shared&) const {
    const int row = part.row + warp.number() * 16;
    store_rows<kStored, kFirsts>(
        warp, first, part.head, row, rows(), problem.depth, [](Registers& r) { return r.first; },
        [&](Registers&, int) { return problem.scale; });
    if constexpr (kOfKeys)
      store_rows<kStored, kSeconds>(
          warp, second, part.head, row, rows(), problem.value_depth, [](Registers& r) { return r.second; },
          [](Registers&, int) { return 1.0f; });
  }

 private:
  template <int kCount>
  EPWEAVE_HD void load_keys(std::int64_t head, int from, int thread, Tile<kCount, kDepth>& x,
                            Tile<kCount, kValueDepth>& y) const {
    const std::int64_t keys = problem.rules.keys;
    load_rows<kCount, kDepth>(problem.key, head, from, keys, problem.depth, problem.has_vectors, thread, x);
    load_rows<kCount, kValueDepth>(problem.value, head, from, keys, problem.value_depth, problem.has_vectors,
                                   thread, y);
  }
  // With the logarithms, in units of log 2, and delta. A row without pairs has weights of 0.
  template <int kCount>
  EPWEAVE_HD void load_queries(std::int64_t head, int from, int thread, Tile<kCount, kDepth>& x,
                               Tile<kCount, kValueDepth>& y, Shared& shared) const {
    const std::int64_t queries = problem.rules.queries;
    load_rows<kCount, kDepth>(problem.query, head, from, queries, problem.depth, problem.has_vectors, thread,
                              x);
    load_rows<kCount, kValueDepth>(grad_out, head, from, queries, problem.value_depth, problem.has_vectors,
                                   thread, y);
    if (thread >= kCount) return;
    const bool is_inside = from + thread < queries;
    const std::int64_t at = head * queries + from + thread;
    const float kept = is_inside ? lse[at] : -math::infinity<float>();
    shared.lse[thread] = kept == -math::infinity<float>()
                             ? math::infinity<float>()
                             : static_cast<float>(static_cast<double>(kept) * (problem.unit / kLn2));
    shared.delta[thread] = is_inside ? delta[at] : 0.0f;
  }
};

}  // namespace epweave::replay::tasks
