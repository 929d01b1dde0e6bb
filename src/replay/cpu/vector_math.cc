#include "replay/cpu/vector_math.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "replay/block_cache.h"
#include "replay/math/portable_math.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define EPWEAVE_AVX2 __attribute__((target("avx2,fma")))
#define EPWEAVE_AVX512 \
  __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")))
#endif
#define EPWEAVE_INLINE [[gnu::always_inline]] inline

namespace epweave::replay::cpu {
namespace {

enum class Level { kBase, kAvx2, kAvx512 };

Level detect_level() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return Level::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Level::kAvx2;
#endif
  return Level::kBase;
}
Level level() {
  static const Level detected = detect_level();
  return detected;
}

// ---- functions of one element -------------------------------------------------------------

struct Exp {
  EPWEAVE_INLINE static float apply(float x, float, float) { return math::exp(x); }
};
struct ExpShifted {
  EPWEAVE_INLINE static float apply(float x, float, float shift) { return math::exp(x - shift); }
};
struct Sigmoid {
  EPWEAVE_INLINE static float apply(float x, float, float) { return math::sigmoid(x); }
};
struct Silu {
  EPWEAVE_INLINE static float apply(float x, float, float) { return math::silu(x); }
};
struct SiluBackward {
  EPWEAVE_INLINE static float apply(float x, float grad, float) { return math::silu_backward(grad, x); }
};

template <class F>
EPWEAVE_INLINE void map_body(std::int64_t n, float* out, const float* in, const float* other, float shift) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = F::apply(in[i], other[i], shift);
}

template <class F>
void map_base(std::int64_t n, float* out, const float* in, const float* other, float shift) {
  map_body<F>(n, out, in, other, shift);
}
#if defined(__x86_64__)
template <class F>
EPWEAVE_AVX2 void map_avx2(std::int64_t n, float* out, const float* in, const float* other, float shift) {
  map_body<F>(n, out, in, other, shift);
}
template <class F>
EPWEAVE_AVX512 void map_avx512(std::int64_t n, float* out, const float* in, const float* other, float shift) {
  map_body<F>(n, out, in, other, shift);
}
#endif

template <class F>
void map(std::int64_t n, float* out, const float* in, const float* other, float shift) {
#if defined(__x86_64__)
  if (level() == Level::kAvx512) return map_avx512<F>(n, out, in, other, shift);
  if (level() == Level::kAvx2) return map_avx2<F>(n, out, in, other, shift);
#endif
  map_base<F>(n, out, in, other, shift);
}

// ---- conversions ----------------------------------------------------------------------------

struct FromBf16 {
  using In = std::uint16_t;
  using Out = float;
  EPWEAVE_INLINE static Out apply(In x) { return math::float_from_bf16(x); }
};
struct ToBf16 {
  using In = float;
  using Out = std::uint16_t;
  EPWEAVE_INLINE static Out apply(In x) { return math::bf16_from_float(x); }
};

template <class F>
EPWEAVE_INLINE void convert_body(std::int64_t n, typename F::Out* out, const typename F::In* in) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = F::apply(in[i]);
}
template <class F>
void convert_base(std::int64_t n, typename F::Out* out, const typename F::In* in) {
  convert_body<F>(n, out, in);
}
#if defined(__x86_64__)
template <class F>
EPWEAVE_AVX2 void convert_avx2(std::int64_t n, typename F::Out* out, const typename F::In* in) {
  convert_body<F>(n, out, in);
}
template <class F>
EPWEAVE_AVX512 void convert_avx512(std::int64_t n, typename F::Out* out, const typename F::In* in) {
  convert_body<F>(n, out, in);
}
#endif
template <class F>
void convert(std::int64_t n, typename F::Out* out, const typename F::In* in) {
#if defined(__x86_64__)
  if (level() == Level::kAvx512) return convert_avx512<F>(n, out, in);
  if (level() == Level::kAvx2) return convert_avx2<F>(n, out, in);
#endif
  convert_base<F>(n, out, in);
}

// ---- transposed copies --------------------------------------------------------------------

// to[j * to_stride + i] = from[i * from_stride + j] for i < rows, j < columns.
struct Transposed {
  const float* from;
  std::int64_t from_stride;
  std::int64_t rows, columns;
  float* to;
  std::int64_t to_stride;
};

void transpose_plain(const Transposed& t) {
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
EPWEAVE_AVX2 void transpose_avx2(const Transposed& t) {
  const std::int64_t rows = t.rows / 8 * 8, columns = t.columns / 8 * 8;
  for (std::int64_t i = 0; i < rows; i += 8)
    for (std::int64_t j = 0; j < columns; j += 8)
      transpose_8x8(t.from + i * t.from_stride + j, t.from_stride, t.to + j * t.to_stride + i, t.to_stride);
  transpose_plain({t.from + columns, t.from_stride, rows, t.columns - columns, t.to + columns * t.to_stride,
                   t.to_stride});
  transpose_plain(
      {t.from + rows * t.from_stride, t.from_stride, t.rows - rows, t.columns, t.to + rows, t.to_stride});
}
#endif

void transpose(const Transposed& t) {
#if defined(__x86_64__)
  if (level() != Level::kBase) return transpose_avx2(t);
#endif
  transpose_plain(t);
}

// ---- products -----------------------------------------------------------------------------

// B is packed into panels of kPanel columns, zero-padded, row after row of the panel.
constexpr std::int64_t kPanel = 32;
constexpr std::int64_t kTileRows = 8;

// Steps of a chain that are taken before the next tile's turn: a panel of them stays in the first-level
// cache. The chain goes on from what c holds, so its bits do not depend on this number.
constexpr std::int64_t kDepth = 256;

// One tile: rows [0, R) of `a` (`a_stride` elements from row to row), `depth` elements of each, times a
// panel. c has `stride`; `columns` are stored.
struct Tile {
  const float* a;
  std::int64_t a_stride;
  const float* panel;
  float* c;
  std::int64_t depth;
  std::int64_t stride;
  std::int64_t columns;
  Start start;
};

EPWEAVE_INLINE std::int64_t row_at(std::size_t row, std::int64_t stride) {
  return static_cast<std::int64_t>(row) * stride;
}

template <std::size_t R>
void tile_base(const Tile& t) {
  float sum[R][static_cast<std::size_t>(kPanel)] = {};
  for (std::size_t r = 0; r < R && t.start == Start::kAccumulate; ++r)
    std::copy(t.c + row_at(r, t.stride), t.c + row_at(r, t.stride) + t.columns, sum[r]);
  for (std::int64_t k = 0; k < t.depth; ++k)
    for (std::size_t r = 0; r < R; ++r)
      for (std::int64_t j = 0; j < t.columns; ++j)
        sum[r][j] = math::fma(t.a[row_at(r, t.a_stride) + k], t.panel[k * kPanel + j], sum[r][j]);
  for (std::size_t r = 0; r < R; ++r) std::copy(sum[r], sum[r] + t.columns, t.c + row_at(r, t.stride));
}

#if defined(__x86_64__)
template <std::size_t R>
EPWEAVE_AVX512 void tile_avx512(const Tile& t) {
  __m512 low[R], high[R];
  float edge[kPanel] = {};
  for (std::size_t r = 0; r < R; ++r) {
    low[r] = high[r] = _mm512_setzero_ps();
    if (t.start == Start::kAccumulate) {
      std::copy(t.c + row_at(r, t.stride), t.c + row_at(r, t.stride) + t.columns, edge);
      low[r] = _mm512_loadu_ps(edge);
      high[r] = _mm512_loadu_ps(edge + 16);
    }
  }
  const float* b = t.panel;
  for (std::int64_t k = 0; k < t.depth; ++k, b += kPanel) {
    const __m512 b_low = _mm512_loadu_ps(b), b_high = _mm512_loadu_ps(b + 16);
#pragma GCC unroll 8
    for (std::size_t r = 0; r < R; ++r) {
      const __m512 a = _mm512_set1_ps(t.a[row_at(r, t.a_stride) + k]);
      low[r] = _mm512_fmadd_ps(a, b_low, low[r]);
      high[r] = _mm512_fmadd_ps(a, b_high, high[r]);
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    if (t.columns == kPanel) {
      _mm512_storeu_ps(t.c + row_at(r, t.stride), low[r]);
      _mm512_storeu_ps(t.c + row_at(r, t.stride) + 16, high[r]);
    } else {
      _mm512_storeu_ps(edge, low[r]);
      _mm512_storeu_ps(edge + 16, high[r]);
      std::copy(edge, edge + t.columns, t.c + row_at(r, t.stride));
    }
  }
}

// 16 registers: half a panel and half the rows at a time.
template <std::size_t R>
EPWEAVE_AVX2 void half_tile_avx2(const Tile& t, std::int64_t first, std::int64_t columns) {
  __m256 low[R], high[R];
  float edge[16] = {};
  for (std::size_t r = 0; r < R; ++r) {
    low[r] = high[r] = _mm256_setzero_ps();
    if (t.start == Start::kAccumulate) {
      std::copy(t.c + row_at(r, t.stride) + first, t.c + row_at(r, t.stride) + first + columns, edge);
      low[r] = _mm256_loadu_ps(edge);
      high[r] = _mm256_loadu_ps(edge + 8);
    }
  }
  const float* b = t.panel + first;
  for (std::int64_t k = 0; k < t.depth; ++k, b += kPanel) {
    const __m256 b_low = _mm256_loadu_ps(b), b_high = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 4
    for (std::size_t r = 0; r < R; ++r) {
      const __m256 a = _mm256_set1_ps(t.a[row_at(r, t.a_stride) + k]);
      low[r] = _mm256_fmadd_ps(a, b_low, low[r]);
      high[r] = _mm256_fmadd_ps(a, b_high, high[r]);
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    _mm256_storeu_ps(edge, low[r]);
    _mm256_storeu_ps(edge + 8, high[r]);
    std::copy(edge, edge + columns, t.c + row_at(r, t.stride) + first);
  }
}
template <std::size_t R>
void tile_avx2(const Tile& t) {
  constexpr std::size_t kFirst = R > 4 ? 4 : R;
  for (std::int64_t first = 0; first < t.columns; first += 16) {
    const std::int64_t columns = std::min<std::int64_t>(16, t.columns - first);
    half_tile_avx2<kFirst>(t, first, columns);
    if constexpr (R > kFirst) {
      Tile rest = t;
      rest.a += row_at(kFirst, t.a_stride);
      rest.c += row_at(kFirst, t.stride);
      half_tile_avx2<R - kFirst>(rest, first, columns);
    }
  }
}
#endif

template <std::size_t R>
void tile(const Tile& t) {
#if defined(__x86_64__)
  if (level() == Level::kAvx512) return tile_avx512<R>(t);
  if (level() == Level::kAvx2) return tile_avx2<R>(t);
#endif
  tile_base<R>(t);
}
void tile_of(std::int64_t rows, const Tile& t) {
  using TileFn = void (*)(const Tile&);
  constexpr TileFn by_rows[kTileRows + 1] = {nullptr, tile<1>, tile<2>, tile<3>, tile<4>,
                                             tile<5>, tile<6>, tile<7>, tile<8>};
  by_rows[rows](t);
}

// Row after row.
Buffer<float> pack_rows(const Matrix<float>& a) {
  Buffer<float> packed(static_cast<std::size_t>(a.rows * a.columns));
  if (a.row_stride == 1) {
    constexpr std::int64_t kBlock = 64;  // columns of `a` whose lines stay in the first-level cache
    for (std::int64_t k = 0; k < a.columns; k += kBlock)
      transpose({a.data + k * a.column_stride, a.column_stride, std::min(kBlock, a.columns - k), a.rows,
                 packed.data() + k, a.columns});
    return packed;
  }
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t k = 0; k < a.columns; ++k)
      packed[static_cast<std::size_t>(i * a.columns + k)] = a.data[i * a.row_stride + k * a.column_stride];
  return packed;
}

void pack_panel(const Matrix<float>& b, float* to) {
  if (b.columns != kPanel) std::fill(to, to + b.rows * kPanel, 0.0f);
  if (b.row_stride == 1 && b.column_stride != 1)
    return transpose({b.data, b.column_stride, b.columns, b.rows, to, kPanel});
  for (std::int64_t k = 0; k < b.rows; ++k) {
    const float* from = b.data + k * b.row_stride;
    if (b.column_stride == 1)
      std::copy(from, from + b.columns, to + k * kPanel);
    else
      for (std::int64_t j = 0; j < b.columns; ++j) to[k * kPanel + j] = from[j * b.column_stride];
  }
}

// The same chains, a row of c at a time.
template <class C>
EPWEAVE_INLINE void multiply_rows_body(const Matrix<C>& a, const C* b, std::int64_t columns, C* c,
                                       std::int64_t stride) {
  for (std::int64_t i = 0; i < a.rows; ++i) {
    C* row = c + i * stride;
    for (std::int64_t k = 0; k < a.columns; ++k) {
      const C x = a.data[i * a.row_stride + k * a.column_stride];
#pragma GCC ivdep
      for (std::int64_t j = 0; j < columns; ++j) {
        if constexpr (std::is_same_v<C, std::int64_t>)
          row[j] = static_cast<std::int64_t>(static_cast<std::uint64_t>(x) *
                                                 static_cast<std::uint64_t>(b[k * columns + j]) +
                                             static_cast<std::uint64_t>(row[j]));
        else
          row[j] = math::fma(x, b[k * columns + j], row[j]);
      }
    }
  }
}
template <class C>
void multiply_rows_base(const Matrix<C>& a, const C* b, std::int64_t columns, C* c, std::int64_t stride) {
  multiply_rows_body(a, b, columns, c, stride);
}
#if defined(__x86_64__)
template <class C>
EPWEAVE_AVX2 void multiply_rows_avx2(const Matrix<C>& a, const C* b, std::int64_t columns, C* c,
                                     std::int64_t stride) {
  multiply_rows_body(a, b, columns, c, stride);
}
#endif

template <class C>
void multiply_plain(const Matrix<C>& a, const Matrix<C>& b, C* c, std::int64_t stride, Start start) {
  if (start == Start::kZero)
    for (std::int64_t i = 0; i < a.rows; ++i) std::fill(c + i * stride, c + i * stride + b.columns, C(0));
  Buffer<C> packed(static_cast<std::size_t>(b.rows * b.columns));
  for (std::int64_t k = 0; k < b.rows; ++k)
    for (std::int64_t j = 0; j < b.columns; ++j)
      packed[static_cast<std::size_t>(k * b.columns + j)] = b.data[k * b.row_stride + j * b.column_stride];
#if defined(__x86_64__)
  if (level() != Level::kBase) return multiply_rows_avx2<C>(a, packed.data(), b.columns, c, stride);
#endif
  multiply_rows_base<C>(a, packed.data(), b.columns, c, stride);
}

}  // namespace

void exp_run(std::int64_t n, float* out, const float* in) {
  map<Exp>(n, out, in, in, 0.0f);
}
void sigmoid_run(std::int64_t n, float* out, const float* in) {
  map<Sigmoid>(n, out, in, in, 0.0f);
}
void silu_run(std::int64_t n, float* out, const float* in) {
  map<Silu>(n, out, in, in, 0.0f);
}
void silu_backward_run(std::int64_t n, float* out, const float* grad, const float* in) {
  map<SiluBackward>(n, out, in, grad, 0.0f);
}
void float_from_bf16_run(std::int64_t n, float* out, const std::uint16_t* in) {
  convert<FromBf16>(n, out, in);
}
void bf16_from_float_run(std::int64_t n, std::uint16_t* out, const float* in) {
  convert<ToBf16>(n, out, in);
}
void exp_shifted_run(std::int64_t n, float* out, const float* in, float shift) {
  map<ExpShifted>(n, out, in, in, shift);
}

void multiply(const Matrix<float>& a, const Matrix<float>& b, float* c, std::int64_t stride, Start start) {
  if (a.rows == 0 || b.columns == 0) return;
  Buffer<float> rows_copy;
  const float* rows = a.data;
  if (a.column_stride != 1 || a.row_stride != a.columns) {
    rows_copy = pack_rows(a);
    rows = rows_copy.data();
  }
  if (b.rows == 0 && start == Start::kZero)
    for (std::int64_t i = 0; i < a.rows; ++i) std::fill(c + i * stride, c + i * stride + b.columns, 0.0f);
  Buffer<float> panel(static_cast<std::size_t>(kPanel * std::min(kDepth, b.rows)));
  for (std::int64_t k = 0; k < b.rows; k += kDepth) {
    const std::int64_t depth = std::min(kDepth, b.rows - k);
    const Start from = k == 0 ? start : Start::kAccumulate;
    for (std::int64_t first = 0; first < b.columns; first += kPanel) {
      const std::int64_t columns = std::min(kPanel, b.columns - first);
      pack_panel(b.row_block(k, depth).column_block(first, columns), panel.data());
      for (std::int64_t i = 0; i < a.rows; i += kTileRows)
        tile_of(std::min(kTileRows, a.rows - i), {rows + i * a.columns + k, a.columns, panel.data(),
                                                  c + i * stride + first, depth, stride, columns, from});
    }
  }
}
void multiply(const Matrix<double>& a, const Matrix<double>& b, double* c, std::int64_t stride, Start start) {
  multiply_plain(a, b, c, stride, start);
}
void multiply(const Matrix<std::int64_t>& a, const Matrix<std::int64_t>& b, std::int64_t* c,
              std::int64_t stride, Start start) {
  multiply_plain(a, b, c, stride, start);
}

}  // namespace epweave::replay::cpu
