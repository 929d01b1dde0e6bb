#include "replay/kernels/host/product.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "replay/kernels/host/levels.h"
#include "replay/kernels/host/vector_math.h"
#include "replay/kernels/math/portable_math.h"
#include "replay/values/block_cache.h"

namespace epweave::replay::cpu {
namespace {

// ---- transposed copies --------------------------------------------------------------------

// to[j * to_stride + i] = from[i * from_stride + j] for i < rows, j < columns.
template <class C>
struct Transposed {
  const C* from;
  std::int64_t from_stride;
  std::int64_t rows, columns;
  C* to;
  std::int64_t to_stride;
};

template <class C>
void transpose_plain(const Transposed<C>& t) {
  for (std::int64_t j = 0; j < t.columns; ++j)
    for (std::int64_t i = 0; i < t.rows; ++i) t.to[j * t.to_stride + i] = t.from[i * t.from_stride + j];
}

#if defined(__x86_64__)
EPWEAVE_AVX2 void transpose_8x8(const float* from, std::int64_t from_stride, float* to,
                                std::int64_t to_stride) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(from + i * from_stride);
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
    a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
    a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
    a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
}
EPWEAVE_AVX2 void transpose_avx2(const Transposed<float>& t) {
  const std::int64_t rows = t.rows / 8 * 8, columns = t.columns / 8 * 8;
  for (std::int64_t i = 0; i < rows; i += 8)
    for (std::int64_t j = 0; j < columns; j += 8)
      transpose_8x8(t.from + i * t.from_stride + j, t.from_stride, t.to + j * t.to_stride + i, t.to_stride);
  transpose_plain<float>({t.from + columns, t.from_stride, rows, t.columns - columns,
                          t.to + columns * t.to_stride, t.to_stride});
  transpose_plain<float>(
      {t.from + rows * t.from_stride, t.from_stride, t.rows - rows, t.columns, t.to + rows, t.to_stride});
}
#endif

template <class C>
void transpose(const Transposed<C>& t) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<C, float>)
    if (level() != Level::kBase) return transpose_avx2(t);
#endif
  transpose_plain(t);
}

// ---- products -----------------------------------------------------------------------------

// C: float or double. B is packed into panels of kPanel columns, zero-padded, row after row of the
// panel.
template <class C>
constexpr std::int64_t kPanel = 128 / static_cast<std::int64_t>(sizeof(C));
constexpr std::int64_t kTileRows = 8;

// Steps of a chain that are taken before the next tile's turn: a panel of them stays in the
// first-level cache, kChunk columns of b and kBlockRows rows of a in the second-level cache. The
// chain goes on from what c holds, so its bits do not depend on these.
constexpr std::int64_t kDepth = 256;
constexpr std::int64_t kChunk = 512;
constexpr std::int64_t kBlockRows = 128;

// One tile: R rows of a, its element (r, k) at a[r * row_step + k * column_step], `depth` columns
// of them, times a panel. c has `stride`; `columns` are stored.
template <class C>
struct Tile {
  const C* a;
  std::int64_t row_step, column_step;
  const C* panel;
  C* c;
  std::int64_t depth;
  std::int64_t stride;
  std::int64_t columns;
  Start start;
};

EPWEAVE_INLINE std::int64_t row_at(std::size_t row, std::int64_t stride) {
  return static_cast<std::int64_t>(row) * stride;
}

template <std::size_t R, class C>
void tile_base(const Tile<C>& t) {
  C sum[R][static_cast<std::size_t>(kPanel<C>)] = {};
  for (std::size_t r = 0; r < R && t.start == Start::kAccumulate; ++r)
    std::copy(t.c + row_at(r, t.stride), t.c + row_at(r, t.stride) + t.columns, sum[r]);
  for (std::int64_t k = 0; k < t.depth; ++k)
    for (std::size_t r = 0; r < R; ++r)
      for (std::int64_t j = 0; j < t.columns; ++j)
        sum[r][j] =
            math::fma(t.a[row_at(r, t.row_step) + k * t.column_step], t.panel[k * kPanel<C> + j], sum[r][j]);
  for (std::size_t r = 0; r < R; ++r) std::copy(sum[r], sum[r] + t.columns, t.c + row_at(r, t.stride));
}

#if defined(__x86_64__)
// Registers of an instruction set, half a row of a panel each, or with AVX2 a quarter.
template <class C>
struct Avx512;
template <>
struct Avx512<float> {
  using Vector = __m512;
  using Mask = __mmask16;
  EPWEAVE_AVX512 static Vector load(Mask mask, const float* from) {
    return _mm512_maskz_loadu_ps(mask, from);
  }
  EPWEAVE_AVX512 static void store(float* to, Mask mask, Vector x) { _mm512_mask_storeu_ps(to, mask, x); }
  EPWEAVE_AVX512 static Vector fill(float x) { return _mm512_set1_ps(x); }
  EPWEAVE_AVX512 static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
};
template <>
struct Avx512<double> {
  using Vector = __m512d;
  using Mask = __mmask8;
  EPWEAVE_AVX512 static Vector load(Mask mask, const double* from) {
    return _mm512_maskz_loadu_pd(mask, from);
  }
  EPWEAVE_AVX512 static void store(double* to, Mask mask, Vector x) { _mm512_mask_storeu_pd(to, mask, x); }
  EPWEAVE_AVX512 static Vector fill(double x) { return _mm512_set1_pd(x); }
  EPWEAVE_AVX512 static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
};
template <class C>
struct Avx2;
template <>
struct Avx2<float> {
  using Vector = __m256;
  EPWEAVE_AVX2 static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  EPWEAVE_AVX2 static void store(float* to, Vector x) { _mm256_storeu_ps(to, x); }
  EPWEAVE_AVX2 static Vector fill(float x) { return _mm256_set1_ps(x); }
  EPWEAVE_AVX2 static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
};
template <>
struct Avx2<double> {
  using Vector = __m256d;
  EPWEAVE_AVX2 static Vector load(const double* from) { return _mm256_loadu_pd(from); }
  EPWEAVE_AVX2 static void store(double* to, Vector x) { _mm256_storeu_pd(to, x); }
  EPWEAVE_AVX2 static Vector fill(double x) { return _mm256_set1_pd(x); }
  EPWEAVE_AVX2 static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
};

template <std::size_t R, class C>
EPWEAVE_AVX512 void tile_avx512(const Tile<C>& t) {
  using Registers = Avx512<C>;
  using Mask = typename Registers::Mask;
  constexpr int kHalf = static_cast<int>(kPanel<C>) / 2;
  const std::uint64_t stored = (std::uint64_t{1} << t.columns) - 1;
  const Mask mask_low = static_cast<Mask>(stored), mask_high = static_cast<Mask>(stored >> kHalf);
  typename Registers::Vector low[R], high[R];
  for (std::size_t r = 0; r < R; ++r) {
    low[r] = high[r] = Registers::fill(0);
    if (t.start == Start::kAccumulate) {
      const C* c = t.c + row_at(r, t.stride);
      low[r] = Registers::load(mask_low, c);
      high[r] = Registers::load(mask_high, c + kHalf);
    }
  }
  constexpr Mask kAll = static_cast<Mask>(~Mask{0});
  const C* b = t.panel;
  for (std::int64_t k = 0; k < t.depth; ++k, b += kPanel<C>) {
    const auto b_low = Registers::load(kAll, b), b_high = Registers::load(kAll, b + kHalf);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r) {
      const auto a = Registers::fill(t.a[row_at(r, t.row_step) + k * t.column_step]);
      low[r] = Registers::fma(a, b_low, low[r]);
      high[r] = Registers::fma(a, b_high, high[r]);
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    C* c = t.c + row_at(r, t.stride);
    Registers::store(c, mask_low, low[r]);
    Registers::store(c + kHalf, mask_high, high[r]);
  }
}

// 16 registers: half a panel and half the rows at a time.
template <std::size_t R, class C>
EPWEAVE_AVX2 void half_tile_avx2(const Tile<C>& t, std::int64_t first, std::int64_t columns) {
  using Registers = Avx2<C>;
  constexpr std::int64_t kHalf = kPanel<C> / 2, kQuarter = kHalf / 2;
  typename Registers::Vector low[R], high[R];
  C edge[static_cast<std::size_t>(kHalf)] = {};
  for (std::size_t r = 0; r < R; ++r) {
    low[r] = high[r] = Registers::fill(0);
    if (t.start == Start::kAccumulate) {
      const C* c = t.c + row_at(r, t.stride) + first;
      if (columns != kHalf) c = std::copy(c, c + columns, edge) - columns;
      low[r] = Registers::load(c);
      high[r] = Registers::load(c + kQuarter);
    }
  }
  const C* b = t.panel + first;
  for (std::int64_t k = 0; k < t.depth; ++k, b += kPanel<C>) {
    const auto b_low = Registers::load(b), b_high = Registers::load(b + kQuarter);
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
      const auto a = Registers::fill(t.a[row_at(r, t.row_step) + k * t.column_step]);
      low[r] = Registers::fma(a, b_low, low[r]);
      high[r] = Registers::fma(a, b_high, high[r]);
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    C* c = t.c + row_at(r, t.stride) + first;
    C* to = columns == kHalf ? c : edge;
    Registers::store(to, low[r]);
    Registers::store(to + kQuarter, high[r]);
    if (to == edge) std::copy(edge, edge + columns, c);
  }
}
template <std::size_t R, class C>
void tile_avx2(const Tile<C>& t) {
  constexpr std::int64_t kHalf = kPanel<C> / 2;
  constexpr std::size_t kFirst = R > 4 ? 4 : R;
  for (std::int64_t first = 0; first < t.columns; first += kHalf) {
    const std::int64_t columns = std::min(kHalf, t.columns - first);
    half_tile_avx2<kFirst>(t, first, columns);
    if constexpr (R > kFirst) {
      Tile<C> rest = t;
      rest.a += row_at(kFirst, t.row_step);
      rest.c += row_at(kFirst, t.stride);
      half_tile_avx2<R - kFirst>(rest, first, columns);
    }
  }
}
#endif

template <std::size_t R, class C>
void tile(const Tile<C>& t) {
#if defined(__x86_64__)
  if (level() == Level::kAvx512) return tile_avx512<R>(t);
  if (level() == Level::kAvx2) return tile_avx2<R>(t);
#endif
  tile_base<R>(t);
}
template <class C>
void tile_of(std::int64_t rows, const Tile<C>& t) {
  using TileFn = void (*)(const Tile<C>&);
  constexpr TileFn by_rows[kTileRows + 1] = {nullptr,    tile<1, C>, tile<2, C>, tile<3, C>, tile<4, C>,
                                             tile<5, C>, tile<6, C>, tile<7, C>, tile<8, C>};
  by_rows[rows](t);
}

// ---- packing ------------------------------------------------------------------------------

// What the chains of stored elements S are computed in.
template <class S>
using Computed = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class C>
C to_computed(C x) {
  return x;
}
float to_computed(Bfloat16 x) {
  return math::float_from_bf16(x.bits);
}
// to[i] = from[i * stride] for i < n.
template <class S>
void read_line(const S* from, std::int64_t stride, std::int64_t n, Computed<S>* to) {
  if (stride != 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = to_computed(from[i * stride]);
  } else if constexpr (std::is_same_v<S, Computed<S>>) {
    std::copy(from, from + n, to);
  } else {
    float_from_bf16_run(n, to, &from->bits);
  }
}

// A block of rows of at most kDepth columns as C, read from memory in sequence: where it
// lies, or a copy in `to`. Of a transposed matrix kTileRows rows after kTileRows rows, each lot
// column after column.
template <class C>
struct PackedRows {
  const C* data;
  std::int64_t row_step, column_step;
  std::int64_t lot_step;  // from one lot of kTileRows rows to the next
};
constexpr std::int64_t kPadding = 16;  // of a copied row, so that rows begin in other sets of a cache

template <class S, class C = Computed<S>>
PackedRows<C> pack_rows(const Matrix<S>& a, C* to) {
  if (a.row_stride == 1 && a.column_stride != 1) {
    const std::int64_t lots = (a.rows + kTileRows - 1) / kTileRows, lot_size = a.columns * kTileRows;
    std::array<C, static_cast<std::size_t>(kBlockRows)> line{};
    for (std::int64_t k = 0; k < a.columns; ++k) {
      read_line(a.data + k * a.column_stride, 1, a.rows, line.data());
      for (std::int64_t lot = 0; lot < lots; ++lot)
        std::copy_n(line.data() + lot * kTileRows, kTileRows, to + lot * lot_size + k * kTileRows);
    }
    return {to, 1, kTileRows, lot_size};
  }
  if constexpr (std::is_same_v<S, C>)
    if (a.column_stride == 1) return {a.data, a.row_stride, 1, kTileRows * a.row_stride};
  const std::int64_t step = a.columns + kPadding;
  for (std::int64_t r = 0; r < a.rows; ++r)
    read_line(a.data + r * a.row_stride, a.column_stride, a.columns, to + r * step);
  return {to, step, 1, kTileRows * step};
}

// Of a matrix of at most kDepth rows and kChunk columns: panel after panel, each row after row.
template <class S, class C = Computed<S>>
void pack_panels(const Matrix<S>& b, C* to) {
  constexpr std::int64_t kWidth = kPanel<C>;
  const std::int64_t panel_size = b.rows * kWidth;
  const std::int64_t last = b.columns / kWidth * kWidth;  // of a panel that is not full the rest is 0
  if (last != b.columns) std::fill_n(to + b.columns / kWidth * panel_size, panel_size, C(0));
  if (b.row_stride == 1 && b.column_stride != 1) {
    std::array<C, static_cast<std::size_t>(kWidth * kDepth)> lines;
    for (std::int64_t first = 0; first < b.columns; first += kWidth) {
      const std::int64_t columns = std::min(kWidth, b.columns - first);
      for (std::int64_t j = 0; j < columns; ++j)
        read_line(b.data + (first + j) * b.column_stride, 1, b.rows, lines.data() + j * kDepth);
      transpose<C>({lines.data(), kDepth, columns, b.rows, to + first / kWidth * panel_size, kWidth});
    }
    return;
  }
  std::array<C, static_cast<std::size_t>(kChunk)> line;
  for (std::int64_t k = 0; k < b.rows; ++k) {
    read_line(b.data + k * b.row_stride, b.column_stride, b.columns, line.data());
    for (std::int64_t first = 0; first < last; first += kWidth)
      std::copy_n(line.data() + first, kWidth, to + first / kWidth * panel_size + k * kWidth);
    std::copy(line.data() + last, line.data() + b.columns, to + last / kWidth * panel_size + k * kWidth);
  }
}

// ---- blocked products ---------------------------------------------------------------------

// The chains of a block of rows times a chunk of columns, both packed, go on.
template <class C>
void multiply_block(const PackedRows<C>& rows, std::int64_t row_count, const Matrix<C>& panels, C* c,
                    std::int64_t stride, Start start) {
  const std::int64_t depth = panels.rows;
  for (std::int64_t first = 0; first < panels.columns; first += kPanel<C>)
    for (std::int64_t i = 0; i < row_count; i += kTileRows)
      tile_of<C>(std::min(kTileRows, row_count - i),
                 {rows.data + i / kTileRows * rows.lot_step, rows.row_step, rows.column_step,
                  panels.data + first * depth, c + i * stride + first, depth, stride,
                  std::min(kPanel<C>, panels.columns - first), start});
}

template <class A, class B, class C>
void multiply_chunk(const Matrix<A>& a, const Matrix<B>& b, C* c, std::int64_t stride, Start start) {
  if (b.rows == 0 && start == Start::kZero)
    for (std::int64_t i = 0; i < a.rows; ++i) std::fill_n(c + i * stride, b.columns, C(0));
  const std::int64_t most = std::min(kDepth, b.rows);
  const auto round_up = [](std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; };
  Buffer<C> panels(static_cast<std::size_t>(round_up(b.columns, kPanel<C>) * most)),
      rows(static_cast<std::size_t>(round_up(std::min(kBlockRows, a.rows), kTileRows) * (most + kPadding)));
  for (std::int64_t k = 0; k < b.rows; k += kDepth) {
    const std::int64_t depth = std::min(kDepth, b.rows - k);
    pack_panels(b.row_block(k, depth), panels.data());
    for (std::int64_t i = 0; i < a.rows; i += kBlockRows) {
      const Matrix<A> block = a.column_block(k, depth).row_block(i, std::min(kBlockRows, a.rows - i));
      multiply_block<C>(pack_rows(block, rows.data()), block.rows,
                        {panels.data(), depth, b.columns, kPanel<C>, 1}, c + i * stride, stride,
                        k == 0 ? start : Start::kAccumulate);
    }
  }
}

template <class A, class B, class C>
void multiply_chunks(const Matrix<A>& a, const Matrix<B>& b, C* c, std::int64_t stride, Start start) {
  if (a.rows == 0) return;
  for (std::int64_t first = 0; first < b.columns; first += kChunk)
    multiply_chunk(a, b.column_block(first, std::min(kChunk, b.columns - first)), c + first, stride, start);
}
template <class S>
void multiply_and_round(const Matrix<S>& a, const Matrix<S>& b, Bfloat16* c, std::int64_t stride) {
  constexpr std::int64_t kRows = 1024;  // whose sums stay in the second- and third-level cache
  Buffer<float> sums(static_cast<std::size_t>(std::min(kRows, a.rows) * std::min(kChunk, b.columns)));
  for (std::int64_t first = 0; first < b.columns; first += kChunk) {
    const Matrix<S> chunk = b.column_block(first, std::min(kChunk, b.columns - first));
    for (std::int64_t i = 0; i < a.rows; i += kRows) {
      const Matrix<S> block = a.row_block(i, std::min(kRows, a.rows - i));
      multiply_chunk(block, chunk, sums.data(), chunk.columns, Start::kZero);
      for (std::int64_t r = 0; r < block.rows; ++r)
        bf16_from_float_run(chunk.columns, &c[(i + r) * stride + first].bits,
                            sums.data() + r * chunk.columns);
    }
  }
}

// ---- integers -----------------------------------------------------------------------------

// c += a b, a row of c at a time; b is dense.
void multiply_rows(const Matrix<std::int64_t>& a, const std::int64_t* b, std::int64_t columns,
                   std::int64_t* c, std::int64_t stride) {
  for (std::int64_t i = 0; i < a.rows; ++i) {
    std::int64_t* row = c + i * stride;
    for (std::int64_t k = 0; k < a.columns; ++k) {
      const auto x = static_cast<std::uint64_t>(a.data[i * a.row_stride + k * a.column_stride]);
#pragma GCC ivdep
      for (std::int64_t j = 0; j < columns; ++j)
        row[j] = static_cast<std::int64_t>(x * static_cast<std::uint64_t>(b[k * columns + j]) +
                                           static_cast<std::uint64_t>(row[j]));
    }
  }
}
}  // namespace

void multiply(const Matrix<float>& a, const Matrix<float>& b, float* c, std::int64_t stride, Start start) {
  multiply_chunks(a, b, c, stride, start);
}
void multiply(const Matrix<Bfloat16>& a, const Matrix<Bfloat16>& b, float* c, std::int64_t stride) {
  multiply_chunks(a, b, c, stride, Start::kZero);
}
void multiply(const Matrix<Bfloat16>& a, const Matrix<Bfloat16>& b, Bfloat16* c, std::int64_t stride) {
  multiply_and_round(a, b, c, stride);
}
void multiply(const Matrix<float>& a, const Matrix<float>& b, Bfloat16* c, std::int64_t stride) {
  multiply_and_round(a, b, c, stride);
}
void multiply(const FloatMatrix& a, const FloatMatrix& b, const Sums<float>& c, Start start) {
  std::visit(
      [&](const auto& left, const auto& right) { multiply_chunks(left, right, c.data, c.stride, start); }, a,
      b);
}
void multiply(const Matrix<double>& a, const Matrix<double>& b, double* c, std::int64_t stride, Start start) {
  multiply_chunks(a, b, c, stride, start);
}
void multiply(const Matrix<std::int64_t>& a, const Matrix<std::int64_t>& b, std::int64_t* c,
              std::int64_t stride, Start start) {
  if (start == Start::kZero)
    for (std::int64_t i = 0; i < a.rows; ++i) std::fill_n(c + i * stride, b.columns, 0);
  Buffer<std::int64_t> dense(static_cast<std::size_t>(b.rows * b.columns));
  for (std::int64_t k = 0; k < b.rows; ++k)
    for (std::int64_t j = 0; j < b.columns; ++j)
      dense[static_cast<std::size_t>(k * b.columns + j)] = b.data[k * b.row_stride + j * b.column_stride];
  multiply_rows(a, dense.data(), b.columns, c, stride);
}

}  // namespace epweave::replay::cpu
