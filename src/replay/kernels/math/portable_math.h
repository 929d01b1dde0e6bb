// Elementary functions and conversions whose bits do not depend on where they run.
//
// One source for the CPU and the GPU: only IEEE additions, products, quotients, square roots and
// explicitly fused multiply-adds, in the order written. Targets that include it are compiled with
// -ffp-contract=off (nvcc: -fmad=false), without flush-to-zero and without fast division.
// C++17 inside.
//
// Bounds, in units of the last place of the correctly rounded result, denormal results included;
// portable_math_test.cc measures them against long double:
//
//   float    exp 1    log 1    sin 1    cos 1    rsqrt 1    sigmoid 2    silu 3    tanh 1
//   double   exp 1    log 1    sin 1    cos 1    rsqrt 2    sigmoid 3    silu 4    tanh 8
//   sqrt and every conversion: correctly rounded, ties to even
//   silu below -87 (double: -708), where sigmoid is denormal: |x| units of the smallest denormal
//
// NaN in, NaN out. A conversion to a 16-bit type makes the quiet NaN that torch makes.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define EPWEAVE_HD __host__ __device__ inline
#else
#define EPWEAVE_HD [[gnu::always_inline]] inline
#endif

namespace epweave::math {

EPWEAVE_HD std::uint32_t bits_of(float x) {
  std::uint32_t u = 0;
  std::memcpy(&u, &x, sizeof u);
  return u;
}
EPWEAVE_HD float float_of(std::uint32_t u) {
  float x = 0;
  std::memcpy(&x, &u, sizeof x);
  return x;
}
EPWEAVE_HD std::uint64_t bits_of(double x) {
  std::uint64_t u = 0;
  std::memcpy(&u, &x, sizeof u);
  return u;
}
EPWEAVE_HD double double_of(std::uint64_t u) {
  double x = 0;
  std::memcpy(&x, &u, sizeof x);
  return x;
}

// a * b + c, rounded once. An instruction where the machine has one, else libm's exact emulation.
#ifdef __CUDA_ARCH__
EPWEAVE_HD float fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
EPWEAVE_HD double fma(double a, double b, double c) {
  return __fma_rn(a, b, c);
}
EPWEAVE_HD float sqrt(float x) {
  return __fsqrt_rn(x);
}
EPWEAVE_HD double sqrt(double x) {
  return __dsqrt_rn(x);
}
#else
EPWEAVE_HD float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
EPWEAVE_HD double fma(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
EPWEAVE_HD float sqrt(float x) {
  return __builtin_sqrtf(x);
}
EPWEAVE_HD double sqrt(double x) {
  return __builtin_sqrt(x);
}
#endif

EPWEAVE_HD bool is_nan(float x) {
  return (bits_of(x) & 0x7fffffffu) > 0x7f800000u;
}
EPWEAVE_HD bool is_nan(double x) {
  return (bits_of(x) & 0x7fffffffffffffffu) > 0x7ff0000000000000u;
}
EPWEAVE_HD float abs(float x) {
  return float_of(bits_of(x) & 0x7fffffffu);
}
EPWEAVE_HD double abs(double x) {
  return double_of(bits_of(x) & 0x7fffffffffffffffu);
}

// ---- 16-bit types -------------------------------------------------------------------------

EPWEAVE_HD float float_from_bf16(std::uint16_t h) {
  return float_of(static_cast<std::uint32_t>(h) << 16);
}

#ifdef __CUDA_ARCH__
// One instruction for the number; the NaN that it makes is another one.
EPWEAVE_HD std::uint16_t bf16_from_float(float x) {
  std::uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return x != x ? std::uint16_t{0x7fc0u} : h;
}
#else
EPWEAVE_HD std::uint16_t bf16_from_float(float x) {
  const std::uint32_t u = bits_of(x);
  const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}
#endif

EPWEAVE_HD float float_from_fp16(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x0400u) return float_of(sign | ((magnitude << 13) + 0x38000000u));
  // Denormal: magnitude * 2^-24, exact.
  const float value = static_cast<float>(magnitude) * 5.9604644775390625e-8f;
  return float_of(sign | bits_of(value));
}

EPWEAVE_HD std::uint16_t fp16_from_float(float x) {
  const std::uint32_t u = bits_of(x);
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  const std::uint32_t magnitude = u & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14: normal
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {
    // Adding 1/2 leaves magnitude / 2^-24, rounded to nearest even, in the low bits of the sum.
    half = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  }
  return static_cast<std::uint16_t>(sign | half);
}

// ---- exp ----------------------------------------------------------------------------------

// 2^n * y for n in [-1200, 1200] with one rounding (y in [0.5, 2]).
EPWEAVE_HD double scale(double y, std::int32_t n) {
  const std::int32_t half = n >> 1;
  const double a = double_of(static_cast<std::uint64_t>(1023 + half) << 52);
  const double b = double_of(static_cast<std::uint64_t>(1023 + n - half) << 52);
  return y * a * b;
}

// Branch-free, so that a loop over it becomes vector code.
EPWEAVE_HD float exp(float x) {
  const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.5f ? -104.5f : c;
  const float t = fma(c, 1.44269502162933349609375f, shift);
  const float n = t - shift;
  float r = fma(n, -0.693147182464599609375f, c);  // exact
  r = fma(n, 1.904654323148236017e-09f, r);
  float p = 1.9875691500e-4f;
  p = fma(p, r, 1.3981999507e-3f);
  p = fma(p, r, 8.3334519073e-3f);
  p = fma(p, r, 4.1665795894e-2f);
  p = fma(p, r, 1.6666665459e-1f);
  p = fma(p, r, 5.0000001201e-1f);
  const float y = 1.0f + fma(p, r * r, r);
  // 2^n in two factors; the second product rounds once. Unsigned: NaN comes here too.
  const std::uint32_t k = bits_of(t) - bits_of(shift) + 512u;  // n + 512, positive
  const std::uint32_t half = k >> 1;
  const float a = float_of((half - 256u + 127u) << 23);
  const float b = float_of((k - half - 256u + 127u) << 23);
  return y * a * b;
}

// exp(r) - 1 = r + reduced_expm1_tail(r) for |r| <= 0.35.
EPWEAVE_HD double reduced_expm1_tail(double r) {
  const double t = r * r;
  double p = 4.13813679705723846039e-08;
  p = fma(p, t, -1.65339022054652515390e-06);
  p = fma(p, t, 6.61375632143793436117e-05);
  p = fma(p, t, -2.77777777770155933842e-03);
  p = fma(p, t, 1.66666666666666019037e-01);
  const double c = r - t * p;
  return r * c / (2.0 - c);
}

EPWEAVE_HD double exp(double x) {
  const double shift = 6755399441055744.0;  // 1.5 * 2^52
  if (is_nan(x)) return x + x;
  double c = x > 710.0 ? 710.0 : x;
  c = c < -746.0 ? -746.0 : c;
  const double t = fma(c, 1.44269504088896338700, shift);
  const double n = t - shift;
  const double hi = fma(n, -6.93147180369123816490e-01, c);
  const double lo = n * 1.90821492927058770002e-10;
  const double r = hi - lo;
  const double y = 1.0 + (hi - (lo - reduced_expm1_tail(r)));
  return scale(y, static_cast<std::int32_t>(n));
}

// ---- log ----------------------------------------------------------------------------------

// k ln(2) + ln(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)); `low`: what k ln(2) has below
// 6.93147180369123816490e-01 k, and more.
EPWEAVE_HD double log_of_one_plus(double f, double k, double low) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 1.479819860511658591e-01;
  p = fma(p, z, 1.531383769920937332e-01);
  p = fma(p, z, 1.818357216161805012e-01);
  p = fma(p, z, 2.222219843214978396e-01);
  p = fma(p, z, 2.857142874366239149e-01);
  p = fma(p, z, 3.999999999940941908e-01);
  p = fma(p, z, 6.666666666666735130e-01);
  const double half_square = 0.5 * f * f;
  return k * 6.93147180369123816490e-01 - ((half_square - fma(s, half_square + z * p, low)) - f);
}

// x = 2^k m with m in [sqrt(1/2), sqrt(2)), x positive, finite and normal.
struct BinaryParts {
  double m;
  std::int32_t k;
};
EPWEAVE_HD BinaryParts binary_parts(double x) {
  const std::uint64_t root_half = 0x3fe6a09e667f3bcdu;
  const std::uint64_t u = bits_of(x);
  const std::uint64_t steps = (u - root_half + (std::uint64_t{2048} << 52)) >> 52;
  return {double_of(u - ((steps - 2048u) << 52)), static_cast<std::int32_t>(steps) - 2048};
}

EPWEAVE_HD double log(double x) {
  const std::uint64_t infinity = 0x7ff0000000000000u;
  if (is_nan(x)) return x + x;
  if (x == 0) return double_of(infinity | 0x8000000000000000u);
  if (x < 0) return double_of(0x7ff8000000000000u);
  if (bits_of(x) == infinity) return x;
  double lowered = 0;
  if (x < 2.2250738585072014e-308) {
    x *= 18014398509481984.0;  // 2^54
    lowered = 54;
  }
  const BinaryParts parts = binary_parts(x);
  const double k = static_cast<double>(parts.k) - lowered;
  return log_of_one_plus(parts.m - 1.0, k, k * 1.90821492927058770002e-10);
}
EPWEAVE_HD float log(float x) {
  return static_cast<float>(log(static_cast<double>(x)));
}

// ---- sin, cos -----------------------------------------------------------------------------

// x = quadrant * pi/2 + hi + lo with |hi| <= pi/4 and a rounding.
struct ReducedAngle {
  double hi;
  double lo;
  std::uint32_t quadrant;  // modulo 4
};

// The bits of 2/pi, after 64 zero bits.
EPWEAVE_HD std::uint32_t two_over_pi_word(std::int32_t i) {
  constexpr std::uint32_t words[42] = {
      0u,          0u,          0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u,
      0x3c439041u, 0xfe5163abu, 0xdebbc561u, 0xb7246e3au, 0x424dd2e0u, 0x06492eeau, 0x09d1921cu,
      0xfe1deb1cu, 0xb129a73eu, 0xe88235f5u, 0x2ebb4484u, 0xe99c7026u, 0xb45f7e41u, 0x3991d639u,
      0x835339f4u, 0x9c845f8bu, 0xbdf9283bu, 0x1ff897ffu, 0xde05980fu, 0xef2f118bu, 0x5a0a6d1fu,
      0x6d367ecfu, 0x27cb09b7u, 0x4f463f66u, 0x9e5fea2du, 0x7527bac7u, 0xebe5f17bu, 0x3d0739f7u,
      0x8a5292eau, 0x6bfb5fb1u, 0x1f8d5d08u, 0x56033046u, 0xfc7b6babu, 0xf0cfbc20u, 0x9af4361du};
  return words[i];
}

// Payne and Hanek: the 192 bits of 2/pi that matter times the 53 bits of x, modulo 4. x >= 2^20.
EPWEAVE_HD ReducedAngle reduce_large_angle(double x) {
  const std::uint64_t u = bits_of(x);
  const std::int32_t exponent = static_cast<std::int32_t>(u >> 52) - 1023 - 52;  // x = mantissa * 2^exponent
  const std::uint64_t mantissa = (u & 0xfffffffffffffu) | 0x10000000000000u;
  const std::int32_t first = exponent - 2 + 64;  // bit of the table, > 0
  const std::int32_t word = first >> 5;
  const std::uint32_t shift = static_cast<std::uint32_t>(first & 31);
  std::uint32_t f[6];  // least significant first
  for (std::int32_t i = 0; i < 6; ++i) {
    const std::uint64_t pair =
        (static_cast<std::uint64_t>(two_over_pi_word(word + 5 - i)) << 32) | two_over_pi_word(word + 6 - i);
    f[i] = static_cast<std::uint32_t>((pair << shift) >> 32);
  }
  const std::uint64_t m[2] = {mantissa & 0xffffffffu, mantissa >> 32};
  std::uint32_t p[6] = {0, 0, 0, 0, 0, 0};
  for (std::int32_t j = 0; j < 2; ++j) {
    std::uint64_t carry = 0;
    for (std::int32_t i = 0; i + j < 6; ++i) {
      const std::uint64_t v = m[j] * f[i] + p[i + j] + carry;
      p[i + j] = static_cast<std::uint32_t>(v);
      carry = v >> 32;
    }
  }
  ReducedAngle r{0, 0, p[5] >> 30};
  bool negative = false;
  p[5] &= 0x3fffffffu;
  if ((p[5] & 0x20000000u) != 0) {  // a fraction of 1/2 or more: one quadrant on, minus the rest
    r.quadrant = (r.quadrant + 1) & 3u;
    negative = true;
    std::uint64_t carry = 1;
    for (std::int32_t i = 0; i < 6; ++i) {
      const std::uint64_t v = static_cast<std::uint64_t>(~p[i]) + carry;
      p[i] = static_cast<std::uint32_t>(v & 0xffffffffu);
      carry = (static_cast<std::uint64_t>(~p[i] == 0xffffffffu) & carry);
    }
    p[5] &= 0x3fffffffu;
  }
  double hi = 0, lo = 0, weight = 9.31322574615478515625e-10;  // 2^-30
  for (std::int32_t i = 5; i >= 0; --i) {
    const double limb = static_cast<double>(p[i]) * weight;
    const double sum = hi + limb;
    const double back = sum - hi;
    lo += (hi - (sum - back)) + (limb - back);
    hi = sum;
    weight *= 2.3283064365386962890625e-10;  // 2^-32
  }
  const double half_pi = 0x1.921fb54442d18p+0, half_pi_low = 0x1.1a62633145c07p-54;
  const double a = hi * half_pi;
  const double b = fma(hi, half_pi, -a) + fma(hi, half_pi_low, lo * half_pi);
  r.hi = a + b;
  r.lo = (a - r.hi) + b;
  if (negative) {
    r.hi = -r.hi;
    r.lo = -r.lo;
  }
  return r;
}

// x finite.
EPWEAVE_HD ReducedAngle reduce_angle(double x) {
  const double magnitude = abs(x);
  if (magnitude <= 0.785398163397448279) return {x, 0, 0};
  if (magnitude >= 1048576.0) {
    ReducedAngle r = reduce_large_angle(magnitude);
    if (x < 0) r = {-r.hi, -r.lo, (4u - r.quadrant) & 3u};
    return r;
  }
  const double shift = 6755399441055744.0;
  const double n = fma(x, 0x1.45f306dc9c883p-1, shift) - shift;
  const double a = fma(-n, 0x1.921fb54442d18p+0, x);  // exact
  const double tail = n * 0x1.1a62633145c07p-54;
  const double hi = a - tail;
  const double tail_low = fma(n, 0x1.1a62633145c07p-54, -tail) + n * -0x1.f1976b7ed8fbcp-110;
  const double back = hi - a;
  const double lo = ((a - (hi - back)) - (tail + back)) - tail_low;
  return {hi, lo, static_cast<std::uint32_t>(static_cast<std::int32_t>(n)) & 3u};
}

EPWEAVE_HD double sin_kernel(double x, double low) {
  const double z = x * x;
  double p = 1.58969099521155010221e-10;
  p = fma(p, z, -2.50507602534068634195e-08);
  p = fma(p, z, 2.75573137070700676789e-06);
  p = fma(p, z, -1.98412698298579493134e-04);
  p = fma(p, z, 8.33333333332248946124e-03);
  const double v = z * x;
  return x - ((z * (0.5 * low - v * p) - low) - v * -1.66666666666666324348e-01);
}
EPWEAVE_HD double cos_kernel(double x, double low) {
  const double z = x * x;
  double p = -1.13596475577881948265e-11;
  p = fma(p, z, 2.08757232129817482790e-09);
  p = fma(p, z, -2.75573143513906633035e-07);
  p = fma(p, z, 2.48015872894767294178e-05);
  p = fma(p, z, -1.38888888888741095749e-03);
  p = fma(p, z, 4.16666666666666019037e-02);
  const double half = 0.5 * z;
  const double w = 1.0 - half;
  return w + (((1.0 - w) - half) + (z * z * p - x * low));
}

EPWEAVE_HD double sin(double x) {
  if (!(abs(x) <= 1.7976931348623157e308)) return double_of(0x7ff8000000000000u);
  if (abs(x) < 7.450580596923828125e-09) return x;  // 2^-27; keeps -0.0
  const ReducedAngle r = reduce_angle(x);
  const double y = (r.quadrant & 1u) != 0 ? cos_kernel(r.hi, r.lo) : sin_kernel(r.hi, r.lo);
  return (r.quadrant & 2u) != 0 ? -y : y;
}
EPWEAVE_HD double cos(double x) {
  if (!(abs(x) <= 1.7976931348623157e308)) return double_of(0x7ff8000000000000u);
  const ReducedAngle r = reduce_angle(x);
  const double y = (r.quadrant & 1u) != 0 ? sin_kernel(r.hi, r.lo) : cos_kernel(r.hi, r.lo);
  return ((r.quadrant + 1u) & 2u) != 0 ? -y : y;
}
EPWEAVE_HD float sin(float x) {
  return static_cast<float>(sin(static_cast<double>(x)));
}
EPWEAVE_HD float cos(float x) {
  return static_cast<float>(cos(static_cast<double>(x)));
}

// ---- composed -----------------------------------------------------------------------------

EPWEAVE_HD double rsqrt(double x) {
  return 1.0 / sqrt(x);
}
EPWEAVE_HD float rsqrt(float x) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(x)));
}

// n / d by a reciprocal of d that is off by 1 unit at most, for d in [1, 2] and n that is 1 or what
// was added to 1 for d: where d is 1 the reciprocal becomes 1, so that small n are themselves; all
// others were tried (portable_math_test.cc tries some), but 1 / (2 - 2^-23) takes the nearest
// reciprocal alone. One Newton step, and one of the quotient: the steps of nvcc's own division for
// sm_90, without the check (FCHK) that leads to another way where quotients are very small.
EPWEAVE_HD float divide_by_reciprocal(float n, float d, float reciprocal) {
  const float r = fma(reciprocal, fma(-d, reciprocal, 1.0f), reciprocal);
  const float q = n * r;
  return fma(r, fma(-d, q, n), q);
}
// Correctly rounded, as n / d is.
EPWEAVE_HD float divide_by_one_to_two(float n, float d) {
#ifdef __CUDA_ARCH__
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(d));
  return divide_by_reciprocal(n, d, reciprocal);
#else
  return n / d;
#endif
}
EPWEAVE_HD double divide_by_one_to_two(double n, double d) {
  return n / d;
}

template <class T>
EPWEAVE_HD T sigmoid(T x) {
  const T e = exp(-abs(x));
  return divide_by_one_to_two(x < T(0) ? e : T(1), T(1) + e);
}
// x * sigmoid(x), with sigmoid rounded first.
template <class T>
EPWEAVE_HD T silu(T x) {
  return x * sigmoid(x);
}
// d silu / dx * g, as torch writes it: g * s * (1 + x * (1 - s)).
template <class T>
EPWEAVE_HD T silu_backward(T g, T x) {
  const T s = sigmoid(x);
  return g * (s * (T(1) + x * (T(1) - s)));
}

EPWEAVE_HD double tanh(double x) {
  const double a = abs(x);
  if (is_nan(x)) return x + x;
  if (a < 1.862645149230957e-09) return x;  // 2^-29
  double y = 1.0;
  if (a <= 0.17) {
    const double e = 2.0 * a + reduced_expm1_tail(2.0 * a);
    y = e / (e + 2.0);
  } else if (a < 22.0) {
    y = 1.0 - 2.0 / (exp(2.0 * a) + 1.0);
  }
  return x < 0 ? -y : y;
}
EPWEAVE_HD float tanh(float x) {
  return static_cast<float>(tanh(static_cast<double>(x)));
}

}  // namespace epweave::math
