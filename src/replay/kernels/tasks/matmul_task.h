// Products on the device: every element is one chain of fused multiply-adds over the reduced index
// ascending, in float32, or in float64 where a is of float64, as on the CPU
// (kernels/host/kernels_matmul.cc). So its bits depend neither on the tile nor on the other rows.
// Integers are multiplied and added modulo 2^64.
//
// A block of threads makes a tile of c: it loads `kDepth` columns of a and rows of b (a chunk) into
// shared memory, each thread takes the steps of its own elements, and so on. On a GPU the phases
// are divided by barriers; the emulated device runs each phase for all threads in turn:
//
//   start, then for each chunk that has_steps: phase<0>, .. phase<kPhases - 1>; store
//
// MatmulTask takes every layout, stored dtype and cover; TiledMatmulTask (tiled_matmul_task.h) is
// faster where it can be used. C++17.
#pragma once

#include "replay/kernels/tasks/tasks.h"

namespace epweave::replay::tasks {

// What a grouped product's bounds cut: `ends[g]` is where group g ends.
enum class GroupedBy : std::uint8_t { kNothing, kRows, kColumns, kDepth };

struct MatrixPlace {
  void* data;
  std::int64_t row_stride, column_stride, batch_stride;
  std::int64_t share;  // batches in a row that use the same matrix
  Stored stored;

  EPWEAVE_HD std::int64_t at(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return batch / share * batch_stride + row * row_stride + column * column_stride;
  }
};

// Which blocks of a matrix count. Null: all.
struct Cover {
  const std::uint8_t* data;
  std::int64_t row_block, column_block, row_stride, column_stride, batch_stride;

  EPWEAVE_HD bool has(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return has_block(batch, row / row_block, column / column_block);
  }
  // Whether any block of these rows and columns (not empty) counts.
  EPWEAVE_HD bool has_any(std::int64_t batch, std::int64_t row, std::int64_t row_end, std::int64_t column,
                          std::int64_t column_end) const {
    if (data == nullptr) return true;
    for (std::int64_t i = row / row_block; i <= (row_end - 1) / row_block; ++i)
      for (std::int64_t j = column / column_block; j <= (column_end - 1) / column_block; ++j)
        if (has_block(batch, i, j)) return true;
    return false;
  }

 private:
  EPWEAVE_HD bool has_block(std::int64_t batch, std::int64_t i, std::int64_t j) const {
    return data[batch * batch_stride + i * row_stride + j * column_stride] != 0;
  }
};

// c = a b, or c += a b (c float32 then), or c = (a b) / the row's divisor, for every batch.
struct MatmulProblem {
  MatrixPlace a, b, c;
  std::int64_t batches, rows, columns, depth;
  Cover summed;  // blocks of (row, reduced index): the others are left out of the chains
  Cover wanted;  // blocks of c: what the others hold afterwards does not matter
  const std::int64_t* ends;
  GroupedBy grouped;
  bool accumulates;
  const float* divisors;  // [batch, row]; null: none

  // What one block of threads computes: rows row .. and columns column .., a tile of them at most.
  struct Part {
    std::int64_t batch;
    std::int64_t row, row_end, column, column_end, first, end;
  };

  EPWEAVE_HD float divided(std::int64_t batch, std::int64_t row, float value) const {
    return divisors == nullptr ? value : value / divisors[batch * rows + row];
  }

  // Tiles of `tile` x `tile` elements in all batches: the number of blocks of threads.
  EPWEAVE_HD std::int64_t count_tiles(int tile) const {
    return batches * tiles(rows, tile) * tiles(columns, tile);
  }

  // A launch has fewer blocks than 2^31, so they are divided in 32 bits.
  EPWEAVE_HD Part part_of(std::uint32_t block, int tile) const {
    const auto across = static_cast<std::uint32_t>(tiles(columns, tile)),
               down = static_cast<std::uint32_t>(tiles(rows, tile));
    Part part{block / across / down,
              static_cast<std::int64_t>(block / across % down) * tile,
              rows,
              static_cast<std::int64_t>(block % across) * tile,
              columns,
              0,
              depth};
    if (grouped == GroupedBy::kRows) cut(part.batch, rows, part.row, part.row_end);
    if (grouped == GroupedBy::kColumns) cut(part.batch, columns, part.column, part.column_end);
    if (grouped == GroupedBy::kDepth) cut(part.batch, depth, part.first, part.end);
    return part;
  }

  // Whether the block has anything to do: the same for all its threads.
  EPWEAVE_HD bool has_work(const Part& part, int tile) const {
    return part.row < part.row_end && part.column < part.column_end &&
           wanted.has_any(part.batch, part.row, end_of(part.row, part.row_end, tile), part.column,
                          end_of(part.column, part.column_end, tile));
  }

  EPWEAVE_HD static std::int64_t end_of(std::int64_t first, std::int64_t end, int tile) {
    return first + tile < end ? first + tile : end;
  }

 private:
  EPWEAVE_HD static std::int64_t tiles(std::int64_t extent, int tile) { return (extent + tile - 1) / tile; }
  EPWEAVE_HD static std::int64_t clamp(std::int64_t x, std::int64_t low, std::int64_t high) {
    return x < low ? low : x > high ? high : x;
  }
  // The range [at, end) moved into group `g`; bounds that are wrong (a fault is raised elsewhere)
  // leave nothing outside of the matrix.
  EPWEAVE_HD void cut(std::int64_t g, std::int64_t extent, std::int64_t& at, std::int64_t& end) const {
    const std::int64_t first = g == 0 ? 0 : clamp(ends[g - 1], 0, extent);
    end = clamp(ends[g], first, extent);
    at += first;
  }
};

// Any problem with chains in C (float, double, int64): strides, stored dtypes and covers are looked
// at for each element.
template <class C>
struct MatmulTask {
  static constexpr int kTile = 64, kDepth = 16, kThreads = 128, kRows = 4, kColumns = 8;
  static constexpr int kThreadsPerRow = kTile / kColumns;
  static constexpr int kBlocks = 1;  // that a multiprocessor holds at least
  static constexpr int kPhases = 2;

  MatmulProblem problem;

  using Part = MatmulProblem::Part;
  struct Shared {
    C a[kDepth][kTile], b[kDepth][kTile];
  };
  struct Registers {
    C c[kRows][kColumns];
  };

  EPWEAVE_HD Part part_of(std::uint32_t block) const { return problem.part_of(block, kTile); }
  EPWEAVE_HD bool has_work(const Part& part) const { return problem.has_work(part, kTile); }
  EPWEAVE_HD static std::int64_t chunks(const Part& part) {
    return (part.end - part.first + kDepth - 1) / kDepth;
  }
  // Whether any step of the chunk counts for any of the block's elements.
  EPWEAVE_HD bool has_steps(const Part& part, std::int64_t chunk) const {
    const std::int64_t k = part.first + chunk * kDepth;
    return problem.summed.has_any(part.batch, part.row, MatmulProblem::end_of(part.row, part.row_end, kTile),
                                  k, k + kDepth < part.end ? k + kDepth : part.end);
  }

  EPWEAVE_HD void start(const Part& part, int thread, Shared&, Registers& r) const {
    const MatrixPlace& c = problem.c;
    EPWEAVE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      EPWEAVE_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        const std::int64_t row = row_of(part, thread, i), column = column_of(part, thread, j);
        r.c[i][j] = C(0);
        if (problem.accumulates && row < part.row_end && column < part.column_end)
          r.c[i][j] = static_cast<const C*>(c.data)[c.at(part.batch, row, column)];
      }
    }
  }

  template <int kPhase>
  EPWEAVE_HD void phase(const Part& part, std::int64_t chunk, int thread, Shared& shared,
                        Registers& r) const {
    const std::int64_t k = part.first + chunk * kDepth;
    if constexpr (kPhase == 0)
      load(part, k, thread, shared);
    else
      multiply(part, k, thread, shared, r);
  }

  EPWEAVE_HD void store(const Part& part, int thread, const Registers& r) const {
    const MatrixPlace& c = problem.c;
    EPWEAVE_UNROLL
    for (int i = 0; i < kRows; ++i) {
      EPWEAVE_UNROLL
      for (int j = 0; j < kColumns; ++j) {
        const std::int64_t row = row_of(part, thread, i), column = column_of(part, thread, j);
        if (row >= part.row_end || column >= part.column_end) continue;
        C value = r.c[i][j];
        if constexpr (std::is_same_v<C, float>) value = problem.divided(part.batch, row, value);
        math::store_element(c.data, c.stored, c.at(part.batch, row, column), value);
      }
    }
  }

 private:
  // Neighbouring threads read neighbouring elements.
  EPWEAVE_HD void load(const Part& part, std::int64_t k, int thread, Shared& shared) const {
    const MatrixPlace &a = problem.a, &b = problem.b;
    for (int e = thread; e < kTile * kDepth; e += kThreads) {
      const int i = a.column_stride == 1 ? e / kDepth : e % kTile,
                ki = a.column_stride == 1 ? e % kDepth : e / kTile;
      const bool is_inside = part.row + i < part.row_end && k + ki < part.end;
      shared.a[ki][i] =
          is_inside ? math::load_element<C>(a.data, a.stored, a.at(part.batch, part.row + i, k + ki)) : C(0);
      const int j = b.column_stride == 1 ? e % kTile : e / kDepth,
                kj = b.column_stride == 1 ? e / kTile : e % kDepth;
      const bool has_b = part.column + j < part.column_end && k + kj < part.end;
      shared.b[kj][j] =
          has_b ? math::load_element<C>(b.data, b.stored, b.at(part.batch, k + kj, part.column + j)) : C(0);
    }
  }

  EPWEAVE_HD void multiply(const Part& part, std::int64_t k, int thread, const Shared& shared,
                           Registers& r) const {
    const Cover& summed = problem.summed;
    const int row = thread / kThreadsPerRow * kRows, column = thread % kThreadsPerRow * kColumns;
    const int steps = static_cast<int>(part.end - k < kDepth ? part.end - k : kDepth);
    for (int step = 0; step < steps; ++step) {
      EPWEAVE_UNROLL
      for (int i = 0; i < kRows; ++i) {
        if (summed.data != nullptr &&
            (part.row + row + i >= part.row_end || !summed.has(part.batch, part.row + row + i, k + step)))
          continue;
        const C x = shared.a[step][row + i];
        EPWEAVE_UNROLL
        for (int j = 0; j < kColumns; ++j) r.c[i][j] = step_of(x, shared.b[step][column + j], r.c[i][j]);
      }
    }
  }

  EPWEAVE_HD static C step_of(C x, C y, C sum) {
    if constexpr (math::is_int<C>)
      return math::wrapping_add(math::wrapping_mul(x, y), sum);
    else
      return math::fma(x, y, sum);
  }
  EPWEAVE_HD static std::int64_t row_of(const Part& part, int thread, int i) {
    return part.row + thread / kThreadsPerRow * kRows + i;
  }
  EPWEAVE_HD static std::int64_t column_of(const Part& part, int thread, int j) {
    return part.column + thread % kThreadsPerRow * kColumns + j;
  }
};

}  // namespace epweave::replay::tasks
