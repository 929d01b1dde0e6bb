// Products whose chains leave blocks out, that add to a result, or that divide it: attention's, of
// a matrix of weights and the rows of one operand. The tiles of TiledMatmulTask
// (tiled_matmul_task.h).
//
// A block of threads looks at one row of `summed`: its chunks are those of the blocks that count,
// one behind the other. C++17.
#pragma once

#include "replay/kernels/tasks/tiled_matmul_task.h"

namespace epweave::replay::tasks {

// c = a b, c += a b, or, of an a that lies row by row, the first divided. a is of float32, b of
// dtype kStored, c of float32 or of a 16-bit float (of float32 where it is added to). A block of
// `summed` has whole tiles of rows, or all rows, and whole chunks of the depth, or all of it; the
// depth is below 2^31. No groups.
template <Stored kStored, Along kA, Along kB, int kEach>
struct CoveredMatmulTask {
  using Tile = TileShape<kEach>;
  static constexpr int kThreads = Tile::kThreads, kTile = Tile::kTile, kDepth = Tile::kDepth;
  static constexpr std::size_t kSide = Tile::kSide;
  static constexpr int kBlocks = 2, kPhases = 1;
  static constexpr bool kIsDivided = kA == Along::kDepth;

  MatmulProblem problem;

  struct Part : MatmulProblem::Part {  // `first`: the first step of the first chunk
    const std::uint8_t* blocks;        // of the part's row of `summed`
    int steps;                         // of all chunks
    std::int64_t a, b;                 // where its rows of a and its columns of b begin
  };
  using Rows = typename Tile::Rows;
  using LoadsA = TileLoads<Stored::kFloat32, kA, kEach>;
  using LoadsB = TileLoads<kStored, kB, kEach>;
  struct Shared {
    Rows a[2], b[2];
    int at[2];  // the first step of the chunk in a buffer, or of the one that goes there next
  };
  struct Registers {
    float c[kSide][kSide];
  };

  // The longest chains first: blocks with short ones then fill what is left at the end. Causal
  // chains grow by the row where rows are queries (a lies row by row), and shrink where they are
  // keys.
  EPWEAVE_HD Part part_of(std::uint32_t block) const {
    const auto across = static_cast<std::uint32_t>(tiles(problem.columns)),
               down = static_cast<std::uint32_t>(tiles(problem.rows));
    const auto batches = static_cast<std::uint32_t>(problem.batches);
    const std::uint32_t place = block / across / batches;
    const std::uint32_t row = kA == Along::kDepth ? down - 1 - place : place;
    Part part{};
    part.batch = block / across % batches;
    part.row = static_cast<std::int64_t>(row) * kTile;
    part.row_end = problem.rows;
    part.column = static_cast<std::int64_t>(block % across) * kTile;
    part.column_end = problem.columns;
    part.end = problem.depth;
    const Cover& summed = problem.summed;
    if (summed.data != nullptr)
      part.blocks =
          summed.data + part.batch * summed.batch_stride + part.row / summed.row_block * summed.row_stride;
    part.first = covered_from(part, 0);
    part.steps = count_steps(part);
    part.a = problem.a.at(part.batch, part.row, 0);
    part.b = problem.b.at(part.batch, 0, part.column);
    return part;
  }
  EPWEAVE_HD bool has_work(const Part& part) const { return problem.has_work(part, kTile); }
  EPWEAVE_HD static int chunks(const Part& part) { return (part.steps + kDepth - 1) / kDepth; }
  EPWEAVE_HD static constexpr bool has_steps(const Part&, int) { return true; }

  EPWEAVE_HD void start(const Part& part, int thread, Shared& shared, Registers& r) const {
    const int first = static_cast<int>(part.first);
    if (thread == 0) shared.at[1] = chunk_after(part, first);
    typename LoadsA::Element held_a[Tile::kHeld];
    fetch_a(part, first, part.steps, thread, held_a);
    LoadsA::put(thread, held_a, shared.a[0]);
    typename LoadsB::Element held_b[Tile::kHeld];
    fetch_b(part, first, part.steps, thread, held_b);
    LoadsB::put(thread, held_b, shared.b[0]);
    EPWEAVE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      EPWEAVE_UNROLL
      for (int j = 0; j < kEach; ++j) r.c[i][j] = 0.0f;
    }
    if (!problem.accumulates) return;
    Tile::for_each_element(problem.c, part, thread, [&](int i, int j, std::int64_t at, bool is_inside) {
      if (is_inside) r.c[i][j] = static_cast<const float*>(problem.c.data)[at];
    });
  }

  template <int>
  EPWEAVE_HD void phase(const Part& part, int chunk, int thread, Shared& shared, Registers& r) const {
    const int buffer = chunk % 2;
    const Rows &a = shared.a[buffer], &b = shared.b[buffer];
    const int left = part.steps - chunk * kDepth;
    if (left < kDepth) {  // the last chunk
      EPWEAVE_NO_UNROLL
      for (int step = 0; step < left; ++step) Tile::multiply(thread, a[step], b[step], r.c);
      return;
    }
    const int next = shared.at[1 - buffer];
    if (thread == 0) shared.at[buffer] = chunk_after(part, next);
    typename LoadsA::Element held_a[Tile::kHeld];
    fetch_a(part, next, left - kDepth, thread, held_a);
    EPWEAVE_UNROLL
    for (int step = 0; step < kDepth / 2; ++step) Tile::multiply(thread, a[step], b[step], r.c);
    LoadsA::put(thread, held_a, shared.a[1 - buffer]);
    typename LoadsB::Element held_b[Tile::kHeld];
    fetch_b(part, next, left - kDepth, thread, held_b);
    EPWEAVE_UNROLL
    for (int step = kDepth / 2; step < kDepth; ++step) Tile::multiply(thread, a[step], b[step], r.c);
    LoadsB::put(thread, held_b, shared.b[1 - buffer]);
  }

  EPWEAVE_HD void store(const Part& part, int thread, Registers& r) const {
    if constexpr (kIsDivided)
      if (problem.divisors != nullptr) divide(part, thread, r);
    const MatrixPlace& c = problem.c;
    if (c.stored == Stored::kFloat32) return Tile::template store<Stored::kFloat32>(c, part, thread, r.c);
    if (c.stored == Stored::kBfloat16) return Tile::template store<Stored::kBfloat16>(c, part, thread, r.c);
    Tile::template store<Stored::kFloat16>(c, part, thread, r.c);
  }

 private:
  EPWEAVE_HD void divide(const Part& part, int thread, Registers& r) const {
    const std::int64_t row = part.row + Tile::first_row(thread);
    const float* const divisors = problem.divisors + part.batch * problem.rows + row;
    EPWEAVE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (row + Tile::row_of(i) >= part.row_end) return;
      const float divisor = divisors[Tile::row_of(i)];
      EPWEAVE_UNROLL
      for (int j = 0; j < kEach; ++j) r.c[i][j] = r.c[i][j] / divisor;
    }
  }
  EPWEAVE_HD static std::int64_t tiles(std::int64_t extent) { return (extent + kTile - 1) / kTile; }
  // In 32 bits: 64 are divided by a function that takes registers from the chains.
  EPWEAVE_HD std::uint32_t block_steps() const {
    constexpr std::int64_t kMost = 0x7fffffff;
    const std::int64_t steps = problem.summed.column_block;
    return static_cast<std::uint32_t>(steps < kMost ? steps : kMost);
  }
  // The first step from `step` on, which begins a block, that counts; the end if none does.
  EPWEAVE_HD int covered_from(const Part& part, std::uint32_t step) const {
    const auto end = static_cast<std::uint32_t>(problem.depth);
    if (part.blocks != nullptr) {
      const std::uint32_t steps = block_steps();
      const std::uint8_t* block = part.blocks + step / steps * problem.summed.column_stride;
      EPWEAVE_NO_UNROLL
      for (; step < end && *block == 0; step += steps) block += problem.summed.column_stride;
    }
    return static_cast<int>(step < end ? step : end);
  }
  EPWEAVE_HD int chunk_after(const Part& part, int step) const {
    const auto end = static_cast<std::uint32_t>(problem.depth),
               next = static_cast<std::uint32_t>(step) + kDepth;
    if (part.blocks == nullptr || next % block_steps() != 0) return static_cast<int>(next < end ? next : end);
    return covered_from(part, next);
  }
  EPWEAVE_HD int count_steps(const Part& part) const {
    const auto end = static_cast<std::uint32_t>(problem.depth);
    if (part.blocks == nullptr) return static_cast<int>(end);
    const std::uint32_t steps = block_steps();
    std::uint32_t count = 0;
    const std::uint8_t* block = part.blocks;
    EPWEAVE_UNROLL
    for (std::uint32_t step = 0; step < end; step += steps, block += problem.summed.column_stride)
      if (*block != 0) count += end - step < steps ? end - step : steps;
    return static_cast<int>(count);
  }

  // The chunk that begins at `step`, of which `steps` steps are left. What is known of the part
  // lies in shared memory: the chains need the registers.
  EPWEAVE_HD void fetch_a(const Part& part, int step, int steps, int thread,
                          typename LoadsA::Element (&to)[Tile::kHeld]) const {
    const MatrixPlace& a = problem.a;
    const std::int64_t row = LoadsA::other(thread), column = std::int64_t{step} + LoadsA::depth(thread);
    const std::int64_t at =
        part.a + (kA == Along::kDepth ? row * a.row_stride + column : row + column * a.column_stride);
    LoadsA::fetch(a.data, at, Tile::limit(part.row_end - part.row) - LoadsA::other(thread),
                  steps - LoadsA::depth(thread), to);
  }
  EPWEAVE_HD void fetch_b(const Part& part, int step, int steps, int thread,
                          typename LoadsB::Element (&to)[Tile::kHeld]) const {
    const MatrixPlace& b = problem.b;
    const std::int64_t row = std::int64_t{step} + LoadsB::depth(thread), column = LoadsB::other(thread);
    const std::int64_t at =
        part.b + (kB == Along::kDepth ? row + column * b.column_stride : row * b.row_stride + column);
    LoadsB::fetch(b.data, at, Tile::limit(part.column_end - part.column) - LoadsB::other(thread),
                  steps - LoadsB::depth(thread), to);
  }
};

}  // namespace epweave::replay::tasks
