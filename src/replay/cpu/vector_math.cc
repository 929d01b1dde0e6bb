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

// ---- products -----------------------------------------------------------------------------

// B is packed into panels of kPanel columns, zero-padded, row after row of the panel.
constexpr std::int64_t kPanel = 32;
constexpr std::int64_t kTileRows = 8;

// One tile: rows [0, R) of `a` (row-major, `depth` long) times a panel. c has `stride`; `columns` are stored.
struct Tile {
  const float* a;
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
        sum[r][j] = math::fma(t.a[row_at(r, t.depth) + k], t.panel[k * kPanel + j], sum[r][j]);
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
      const __m512 a = _mm512_set1_ps(t.a[row_at(r, t.depth) + k]);
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
      const __m256 a = _mm256_set1_ps(t.a[row_at(r, t.depth) + k]);
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
      rest.a += row_at(kFirst, t.depth);
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

Buffer<float> pack_rows(const Matrix<float>& a) {
  Buffer<float> packed(static_cast<std::size_t>(a.rows * a.columns));
  for (std::int64_t first = 0; first < a.columns; first += 64) {
    const std::int64_t last = std::min(a.columns, first + 64);
    for (std::int64_t i = 0; i < a.rows; ++i)
      for (std::int64_t k = first; k < last; ++k)
        packed[static_cast<std::size_t>(i * a.columns + k)] = a.data[i * a.row_stride + k * a.column_stride];
  }
  return packed;
}

Buffer<float> pack_panels(const Matrix<float>& b) {
  const std::int64_t panels = (b.columns + kPanel - 1) / kPanel;
  Buffer<float> packed(static_cast<std::size_t>(panels * kPanel * b.rows), 0.0f);
  for (std::int64_t p = 0; p < panels; ++p) {
    float* to = packed.data() + p * kPanel * b.rows;
    const std::int64_t columns = std::min(kPanel, b.columns - p * kPanel);
    for (std::int64_t k = 0; k < b.rows; ++k) {
      const float* from = b.data + k * b.row_stride + p * kPanel * b.column_stride;
      for (std::int64_t j = 0; j < columns; ++j) to[k * kPanel + j] = from[j * b.column_stride];
    }
  }
  return packed;
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
  const Buffer<float> panels = pack_panels(b);
  for (std::int64_t p = 0; p * kPanel < b.columns; ++p) {
    const float* panel = panels.data() + p * kPanel * b.rows;
    const std::int64_t columns = std::min(kPanel, b.columns - p * kPanel);
    for (std::int64_t i = 0; i < a.rows; i += kTileRows)
      tile_of(std::min(kTileRows, a.rows - i),
              {rows + i * a.columns, panel, c + i * stride + p * kPanel, a.columns, stride, columns, start});
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
