// Products with the layout and the stored dtype as template parameters: the chains of MatmulTask
// (matmul_task.h), made faster.
//
// 256 threads make a tile of kTile x kTile elements, each thread kEach x kEach of them. While a
// chunk is multiplied out of one buffer of shared memory, the next one goes to the other. Beyond
// the edges of a and b there are zeros; no chain has steps beyond the depth (0 * inf is NaN, and
// -0 + 0 is +0), and what lies outside of c is not stored. C++17.
#pragma once

#include "replay/kernels/tasks/matmul_task.h"

namespace epweave::replay::tasks {

// The dimension along which neighbouring elements of an operand lie side by side: the reduced one,
// or the other one (rows of a, columns of b).
enum class Along : std::uint8_t { kDepth, kOther };

// What a tile and a chunk are, and which elements of them are whose. Chains in Real: float or
// double.
template <int kEach, class Real = float>
struct TileShape {
  static constexpr int kThreads = 256, kTile = 16 * kEach,
                       kDepth =
                           64 / static_cast<int>(sizeof(Real));  // a chunk fits into static shared memory
  static constexpr int kLoads =
      kTile * kDepth / kThreads;  // elements of a chunk's operand that a thread loads

  static constexpr std::size_t kHeld = kLoads, kSide = kEach;

  // What a thread takes out of shared memory at once: 16 bytes.
  static constexpr int kUnit = 16 / static_cast<int>(sizeof(Real));
  using Unit = Vector<Real, 16 / sizeof(Real)>;
  // The last unit of a row is unused: so the threads that write a column hit few banks twice.
  using Rows = Unit[static_cast<std::size_t>(kDepth)][static_cast<std::size_t>(kTile / kUnit) + 1];

  // Of numbers that are not negative: shifts, where signed division is more.
  EPWEAVE_HD static int quotient(int a, int b) {
    return static_cast<int>(static_cast<unsigned>(a) / static_cast<unsigned>(b));
  }
  EPWEAVE_HD static int remainder(int a, int b) {
    return static_cast<int>(static_cast<unsigned>(a) % static_cast<unsigned>(b));
  }
  EPWEAVE_HD static int limit(std::int64_t extent) {
    return extent < kTile ? static_cast<int>(extent) : kTile;
  }

  // A warp makes 4 kEach rows and 8 kEach columns, and reads shared memory at 4 and 8 places in a
  // row of 16 bytes each; warps lie 4 down and 2 across. Of each two neighbouring threads both read
  // the same columns, of each two pairs the same rows: the accesses of half a warp become one. A
  // thread's rows and columns are kEach / kUnit times kUnit.
  EPWEAVE_HD static int first_row(int thread) {
    const int lane = remainder(thread, 32);
    return quotient(thread, 64) * 4 * kEach + (quotient(lane, 16) * 2 + remainder(lane, 2)) * kUnit;
  }
  EPWEAVE_HD static int first_column(int thread) {
    return remainder(quotient(thread, 32), 2) * 8 * kEach + remainder(quotient(thread, 2), 8) * kUnit;
  }
  EPWEAVE_HD static constexpr int row_of(int i) { return i / kUnit * 4 * kUnit + i % kUnit; }
  EPWEAVE_HD static constexpr int column_of(int j) { return j / kUnit * 8 * kUnit + j % kUnit; }

  // use(i, j, where it is in c, whether that is inside of c) for each of the thread's elements.
  template <class Use>
  EPWEAVE_HD static void for_each_element(const MatrixPlace& c, const MatmulProblem::Part& part, int thread,
                                          const Use& use) {
    const std::int64_t row = part.row + first_row(thread), column = part.column + first_column(thread);
    const int rows = limit(part.row_end - row), columns = limit(part.column_end - column);
    const std::int64_t first = c.at(part.batch, row, column);
    EPWEAVE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      EPWEAVE_UNROLL
      for (int j = 0; j < kEach; ++j)
        use(i, j, first + row_of(i) * c.row_stride + column_of(j) * c.column_stride,
            row_of(i) < rows && column_of(j) < columns);
    }
  }

  // The chains, rounded to kStored, where they belong in c: 16 bytes at once (8 of a 16-bit float)
  // where they lie so.
  template <Stored kStored>
  EPWEAVE_HD static void store(const MatrixPlace& c, const MatmulProblem::Part& part, int thread,
                               const Real (&chains)[kSide][kSide]) {
    using Element = typename StoredElement<kStored>::Type;
    using V = Vector<Element, 16 / sizeof(Real)>;
    const std::int64_t row = part.row + first_row(thread), column = part.column + first_column(thread);
    const int rows = limit(part.row_end - row), columns = limit(part.column_end - column);
    Element* const first = static_cast<Element*>(c.data) + c.at(part.batch, row, column);
    const bool has_vectors = c.column_stride == 1 && c.row_stride % kUnit == 0 && is_aligned<V>(first);
    EPWEAVE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      if (row_of(i) >= rows) return;
      EPWEAVE_UNROLL
      for (int j = 0; j < kEach; j += kUnit) {
        Element* const to = first + row_of(i) * c.row_stride + column_of(j) * c.column_stride;
        V held;
        EPWEAVE_UNROLL
        for (int q = 0; q < kUnit; ++q) math::store_element(&held.at[q], kStored, 0, chains[i][j + q]);
        if (has_vectors && column_of(j) + kUnit <= columns) {
          store_vector(reinterpret_cast<V*>(to), held);
          continue;
        }
        EPWEAVE_UNROLL
        for (int q = 0; q < kUnit; ++q)
          if (column_of(j) + q < columns) to[q * c.column_stride] = held.at[q];
      }
    }
  }

  EPWEAVE_HD static void multiply(int thread, const Unit* a, const Unit* b, Real (&c)[kSide][kSide]) {
    Real x[kSide], y[kSide];
    EPWEAVE_UNROLL
    for (int i = 0; i < kEach; i += kUnit) {
      const Unit rows = a[quotient(first_row(thread), kUnit) + row_of(i) / kUnit],
                 columns = b[quotient(first_column(thread), kUnit) + column_of(i) / kUnit];
      EPWEAVE_UNROLL
      for (int q = 0; q < kUnit; ++q) {
        x[i + q] = rows.at[q];
        y[i + q] = columns.at[q];
      }
    }
    EPWEAVE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      EPWEAVE_UNROLL
      for (int j = 0; j < kEach; ++j) c[i][j] = math::fma(x[i], y[j], c[i][j]);
    }
  }
};

// Which elements of a chunk a thread loads: kLoads of them that lie side by side.
template <Stored kStored, Along kAlong, int kEach>
struct TileLoads : TileShape<kEach, typename StoredElement<kStored>::Computed> {
  using Real = typename StoredElement<kStored>::Computed;
  using Tile = TileShape<kEach, Real>;
  using Tile::kHeld, Tile::kLoads, Tile::kTile, Tile::kUnit, Tile::quotient, Tile::remainder;
  using Unit = typename Tile::Unit;
  using Rows = typename Tile::Rows;
  using Element = typename StoredElement<kStored>::Type;
  static constexpr bool kByDepth = kAlong == Along::kDepth;
  static constexpr int kThreadsPerLine = (kByDepth ? Tile::kDepth : kTile) / kLoads;
  // 16 bytes at once, or 8, where they lie so.
  static constexpr std::size_t kBytes = kHeld * sizeof(Element) < 16 ? kHeld * sizeof(Element) : 16;
  static constexpr int kInVector = kBytes / sizeof(Element);
  using Loaded = Vector<Element, kBytes / sizeof(Element)>;

  EPWEAVE_HD static int other(int thread) {
    return kByDepth ? quotient(thread, kThreadsPerLine) : remainder(thread, kThreadsPerLine) * kLoads;
  }
  EPWEAVE_HD static int depth(int thread) {
    return kByDepth ? remainder(thread, kThreadsPerLine) * kLoads : quotient(thread, kThreadsPerLine);
  }

  // What lies beyond `others` and `depths` elements from the first one on is not inside.
  EPWEAVE_HD static void fetch(const void* data, std::int64_t at, int others, int depths,
                               Element (&to)[kHeld]) {
    const int left = kByDepth ? depths : others;
    const bool has_line = (kByDepth ? others : depths) > 0;
    const auto* from = static_cast<const Element*>(data) + (has_line ? at : 0);
    if (has_line && left >= kLoads && is_aligned<Loaded>(from)) {
      EPWEAVE_UNROLL
      for (int p = 0; p < kLoads; p += kInVector) {
        const Loaded loaded = *reinterpret_cast<const Loaded*>(from + p);
        EPWEAVE_UNROLL
        for (int q = 0; q < kInVector; ++q) to[p + q] = loaded.at[q];
      }
      return;
    }
    EPWEAVE_UNROLL
    for (int p = 0; p < kLoads; ++p) to[p] = has_line && p < left ? from[p] : Element(0);
  }
  EPWEAVE_HD static void put(int thread, const Element (&from)[kHeld], Rows& to) {
    const int row = depth(thread), column = other(thread);
    if constexpr (kByDepth) {
      EPWEAVE_UNROLL
      for (int p = 0; p < kLoads; ++p)
        to[row + p][quotient(column, kUnit)].at[remainder(column, kUnit)] =
            math::load_element<Real>(&from[p], kStored, 0);
    } else {
      EPWEAVE_UNROLL
      for (int p = 0; p < kLoads; p += kUnit) {
        Unit unit;
        EPWEAVE_UNROLL
        for (int q = 0; q < kUnit; ++q) unit.at[q] = math::load_element<Real>(&from[p + q], kStored, 0);
        to[row][quotient(column, kUnit) + p / kUnit] = unit;
      }
    }
  }
};

// c = a b. a and b are of dtype kStored, c of the same or of the chains'. Nothing is left out of
// the chains (`summed` is null), c is not added to (`accumulates` is false) nor divided, the depth
// is below 2^31.
template <Stored kStored, Along kA, Along kB, int kEach>
struct TiledMatmulTask {
  using Real = typename StoredElement<kStored>::Computed;
  using Tile = TileShape<kEach, Real>;
  static constexpr int kThreads = Tile::kThreads, kTile = Tile::kTile, kDepth = Tile::kDepth;
  static constexpr std::size_t kHeld = Tile::kHeld, kSide = Tile::kSide;
  // That a multiprocessor holds at least: 128 registers a thread, but 64 chains in float64 are 128.
  static constexpr int kBlocks = sizeof(Real) == sizeof(double) && kEach == 8 ? 1 : 2;
  static constexpr int kPhases = 1;

  MatmulProblem problem;

  using Part = MatmulProblem::Part;
  using Element = typename StoredElement<kStored>::Type;
  using Rows = typename Tile::Rows;
  using LoadsA = TileLoads<kStored, kA, kEach>;
  using LoadsB = TileLoads<kStored, kB, kEach>;
  struct Shared {
    Rows a[2], b[2];
  };
  struct Registers {
    Real c[kSide][kSide];
    std::int64_t a, b;  // the thread's first element of the next chunk
    int rows, columns;  // of the matrices from there on, at most the tile's
    int depth;          // steps that are left, with those of the chunk
  };

  EPWEAVE_HD Part part_of(std::uint32_t block) const { return problem.part_of(block, kTile); }
  EPWEAVE_HD bool has_work(const Part& part) const { return problem.has_work(part, kTile); }
  EPWEAVE_HD static int chunks(const Part& part) {
    return static_cast<int>((part.end - part.first + kDepth - 1) / kDepth);
  }
  EPWEAVE_HD static constexpr bool has_steps(const Part&, int) { return true; }

  EPWEAVE_HD void start(const Part& part, int thread, Shared& shared, Registers& r) const {
    r.a = problem.a.at(part.batch, part.row + LoadsA::other(thread), part.first + LoadsA::depth(thread));
    r.b = problem.b.at(part.batch, part.first + LoadsB::depth(thread), part.column + LoadsB::other(thread));
    r.rows = Tile::limit(part.row_end - part.row) - LoadsA::other(thread);
    r.columns = Tile::limit(part.column_end - part.column) - LoadsB::other(thread);
    r.depth = static_cast<int>(part.end - part.first);
    Element first[kHeld];
    fetch_a(r.depth, thread, r, first);
    LoadsA::put(thread, first, shared.a[0]);
    fetch_b(r.depth, thread, r, first);
    LoadsB::put(thread, first, shared.b[0]);
    EPWEAVE_UNROLL
    for (int i = 0; i < kEach; ++i) {
      EPWEAVE_UNROLL
      for (int j = 0; j < kEach; ++j) r.c[i][j] = Real(0);
    }
  }

  template <int>
  EPWEAVE_HD void phase(const Part&, int chunk, int thread, Shared& shared, Registers& r) const {
    const int buffer = chunk % 2;
    const Rows &a = shared.a[buffer], &b = shared.b[buffer];
    if (r.depth < kDepth) {  // the last chunk
      EPWEAVE_NO_UNROLL
      for (int step = 0; step < r.depth; ++step) Tile::multiply(thread, a[step], b[step], r.c);
      return;
    }
    r.depth -= kDepth;
    // One operand after the other: both at once would need too many registers. Behind the last
    // chunk these are zeros that no one reads.
    Element next[kHeld];
    fetch_a(r.depth, thread, r, next);
    EPWEAVE_UNROLL
    for (int step = 0; step < kDepth / 2; ++step) Tile::multiply(thread, a[step], b[step], r.c);
    LoadsA::put(thread, next, shared.a[1 - buffer]);
    fetch_b(r.depth, thread, r, next);
    EPWEAVE_UNROLL
    for (int step = kDepth / 2; step < kDepth; ++step) Tile::multiply(thread, a[step], b[step], r.c);
    LoadsB::put(thread, next, shared.b[1 - buffer]);
  }

  EPWEAVE_HD void store(const Part& part, int thread, const Registers& r) const {
    if (problem.c.stored == kStored) return Tile::template store<kStored>(problem.c, part, thread, r.c);
    if constexpr (!std::is_same_v<Element, Real>)
      Tile::template store<Stored::kFloat32>(problem.c, part, thread, r.c);
  }

 private:
  // `depth`: steps that are left, with those of the chunk.
  EPWEAVE_HD void fetch_a(int depth, int thread, Registers& r, Element (&to)[kHeld]) const {
    const MatrixPlace& a = problem.a;
    LoadsA::fetch(a.data, r.a, r.rows, depth - LoadsA::depth(thread), to);
    r.a += kDepth * (kA == Along::kDepth ? 1 : a.column_stride);
  }
  EPWEAVE_HD void fetch_b(int depth, int thread, Registers& r, Element (&to)[kHeld]) const {
    const MatrixPlace& b = problem.b;
    LoadsB::fetch(b.data, r.b, r.columns, depth - LoadsB::depth(thread), to);
    r.b += kDepth * (kB == Along::kDepth ? 1 : b.row_stride);
  }
};

}  // namespace epweave::replay::tasks
