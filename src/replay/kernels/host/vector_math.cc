#include "replay/kernels/host/vector_math.h"

#include "replay/kernels/host/levels.h"
#include "replay/kernels/math/portable_math.h"

namespace epweave::replay::cpu {
namespace {

// ---- functions of one element -------------------------------------------------------------

struct Exp {
  EPWEAVE_INLINE static float apply(float x, float, float) { return math::exp(x); }
};
struct ExpShifted {
  template <class C>
  EPWEAVE_INLINE static C apply(C x, C, C shift) {
    return math::exp(x - shift);
  }
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

template <class F, class C>
EPWEAVE_INLINE void map_body(std::int64_t n, C* out, const C* in, const C* other, C shift) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = F::apply(in[i], other[i], shift);
}

template <class F, class C>
void map_base(std::int64_t n, C* out, const C* in, const C* other, C shift) {
  map_body<F>(n, out, in, other, shift);
}
#if defined(__x86_64__)
template <class F, class C>
EPWEAVE_AVX2 void map_avx2(std::int64_t n, C* out, const C* in, const C* other, C shift) {
  map_body<F>(n, out, in, other, shift);
}
template <class F, class C>
EPWEAVE_AVX512 void map_avx512(std::int64_t n, C* out, const C* in, const C* other, C shift) {
  map_body<F>(n, out, in, other, shift);
}
#endif

template <class F, class C>
void map(std::int64_t n, C* out, const C* in, const C* other, C shift) {
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

// ---- extremes -------------------------------------------------------------------------------

constexpr std::int64_t kMaxima = 16;

// In 16 lanes; a NaN is remembered beside, since comparisons pass over it.
EPWEAVE_INLINE float maximum_body(std::int64_t n, const float* in, float start) {
  float lanes[kMaxima];
  std::uint32_t unordered[kMaxima] = {};
  for (float& lane : lanes) lane = start;
  std::int64_t i = 0;
  for (; i + kMaxima <= n; i += kMaxima)
    for (std::int64_t l = 0; l < kMaxima; ++l) {
      lanes[l] = in[i + l] > lanes[l] ? in[i + l] : lanes[l];
      unordered[l] |= in[i + l] != in[i + l] ? 1u : 0u;
    }
  for (std::int64_t l = 0; i < n; ++i, ++l) {
    lanes[l] = in[i] > lanes[l] ? in[i] : lanes[l];
    unordered[l] |= in[i] != in[i] ? 1u : 0u;
  }
  float maximum = start;
  bool has_nan = start != start;
  for (std::int64_t l = 0; l < kMaxima; ++l) {
    maximum = lanes[l] > maximum ? lanes[l] : maximum;
    has_nan = has_nan || unordered[l] != 0;
  }
  return has_nan ? math::float_of(0x7fc00000u) : maximum;
}
float maximum_base(std::int64_t n, const float* in, float start) {
  return maximum_body(n, in, start);
}
#if defined(__x86_64__)
EPWEAVE_AVX2 float maximum_avx2(std::int64_t n, const float* in, float start) {
  return maximum_body(n, in, start);
}
EPWEAVE_AVX512 float maximum_avx512(std::int64_t n, const float* in, float start) {
  return maximum_body(n, in, start);
}
#endif

}  // namespace

float maximum_run(std::int64_t n, const float* in, float start) {
#if defined(__x86_64__)
  if (level() == Level::kAvx512) return maximum_avx512(n, in, start);
  if (level() == Level::kAvx2) return maximum_avx2(n, in, start);
#endif
  return maximum_base(n, in, start);
}
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
void exp_shifted_run(std::int64_t n, double* out, const double* in, double shift) {
  map<ExpShifted>(n, out, in, in, shift);
}

}  // namespace epweave::replay::cpu
