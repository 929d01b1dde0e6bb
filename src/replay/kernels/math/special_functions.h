// More elementary functions in portable math (portable_math.h): expm1, log1p, log2, exp2, powers,
// error function, arc tangent, and the activations made of them.
//
// float goes through double and is rounded once. Bounds in units of the last place, as in
// portable_math.h and measured by special_functions_test.cc:
//
//   float    1: expm1 log1p log2 exp2 pow erf erfc atan2 softplus log_sigmoid elu gelu gelu_tanh
//   double   expm1 2    log1p 2    log2 3    exp2 1    erf 4    erfc 6    atan2 3    log_sigmoid 4
//            pow 2 + 2 |y ln x|        gelu 8 + 2 x^2 for x < 0, 6 above
//
// Derivatives of gelu have zeros, near which no such bound holds: they are off by at most 4 u
// |grad|, u the unit roundoff.
#pragma once

#include "replay/kernels/math/portable_math.h"

namespace epweave::math {

// ---- exponentials and logarithms ----------------------------------------------------------

EPWEAVE_HD double expm1(double x) {
  if (is_nan(x)) return x + x;
  if (abs(x) < 1.1102230246251565e-16) return x;  // 2^-53; keeps -0.0
  if (x > 39.0) return exp(x);
  if (x < -39.0) return -1.0;
  const double shift = 6755399441055744.0;  // 1.5 * 2^52
  const double n = fma(x, 1.44269504088896338700, shift) - shift;
  const double high = fma(n, -6.93147180369123816490e-01, x);
  const double low = n * 1.90821492927058770002e-10;
  const double q = high - (low - reduced_expm1_tail(high - low));  // exp of the rest, less 1
  const double power = double_of(static_cast<std::uint64_t>(1023 + static_cast<std::int32_t>(n)) << 52);
  return fma(power, q, power - 1.0);
}

EPWEAVE_HD double log1p(double x) {
  if (is_nan(x)) return x + x;
  if (x < -1.0) return double_of(0x7ff8000000000000u);
  if (x == -1.0) return double_of(0xfff0000000000000u);
  if (bits_of(x) == 0x7ff0000000000000u) return x;
  if (abs(x) < 5.551115123125783e-17) return x;  // 2^-54; keeps -0.0
  if (x > -0.2928 && x < 0.4142) return log_of_one_plus(x, 0.0, 0.0);
  const double u = 1.0 + x;
  const double lost = (x > 1.0 ? 1.0 - (u - x) : x - (u - 1.0)) / u;
  const BinaryParts parts = binary_parts(u);
  const double k = static_cast<double>(parts.k);
  return log_of_one_plus(parts.m - 1.0, k, fma(k, 1.90821492927058770002e-10, lost));
}

// Exact at powers of 2.
EPWEAVE_HD double log2(double x) {
  if (!(x > 0) || bits_of(x) == 0x7ff0000000000000u) return log(x);
  const bool is_denormal = x < 2.2250738585072014e-308;
  const BinaryParts parts = binary_parts(is_denormal ? x * 18014398509481984.0 : x);  // 2^54
  const double k = static_cast<double>(parts.k) - (is_denormal ? 54.0 : 0.0);
  return fma(log_of_one_plus(parts.m - 1.0, 0.0, 0.0), 1.44269504088896338700, k);
}

// Exact at integers.
EPWEAVE_HD double exp2(double x) {
  if (is_nan(x)) return x + x;
  double c = x > 1025.0 ? 1025.0 : x;
  c = c < -1080.0 ? -1080.0 : c;
  const double shift = 6755399441055744.0;
  const double n = (c + shift) - shift;
  const double f = c - n;
  const double r = f * 6.93147180559945286227e-01;
  const double low = -fma(f, 6.93147180559945286227e-01, -r) - f * 2.31904681384629955842e-17;
  const double y = 1.0 + (r - (low - reduced_expm1_tail(r - low)));
  return scale(y, static_cast<std::int32_t>(n));
}

// C's pow: x^0 = 1^y = 1; a negative x to an integer.
EPWEAVE_HD bool is_odd(double y) {
  if (!(abs(y) < 9007199254740992.0)) return false;  // 2^53: all above are even
  const std::int64_t n = static_cast<std::int64_t>(y);
  return static_cast<double>(n) == y && (n & 1) != 0;
}
EPWEAVE_HD bool is_whole(double y) {
  return abs(y) >= 4503599627370496.0 || static_cast<double>(static_cast<std::int64_t>(y)) == y;
}
EPWEAVE_HD double pow(double x, double y) {
  if (y == 0 || x == 1) return 1.0;
  if (is_nan(x) || is_nan(y)) return x + y;
  const double infinity = double_of(0x7ff0000000000000u);
  const double a = abs(x);
  const double sign = (bits_of(x) >> 63) != 0 && is_odd(y) ? -1.0 : 1.0;
  if (a == 1 && abs(y) == infinity) return 1.0;
  if (a == 0 || a == infinity || abs(y) == infinity) {
    const bool is_large = (a > 1) == (y > 0);
    return sign * (is_large ? infinity : 0.0);
  }
  if (x < 0 && !is_whole(y)) return double_of(0x7ff8000000000000u);
  const double l = log(a);
  const double p = y * l;
  const double rest = fma(y, l, -p);
  const double e = exp(p);
  return sign * (abs(p) < 700.0 ? fma(e, rest, e) : e);
}

// ---- the error function -------------------------------------------------------------------

// erf(x) / x - 1 for z = x^2 <= 0.26.
EPWEAVE_HD double erf_ratio(double z) {
  double p = -0x1.3892d132862c9p-23;
  p = fma(p, z, 0x1.b7456a317015dp-20);
  p = fma(p, z, -0x1.f4b8dfa9705f4p-17);
  p = fma(p, z, 0x1.f9a2911c1b223p-14);
  p = fma(p, z, -0x1.c02db1ddad9c1p-11);
  p = fma(p, z, 0x1.565bcd09ab445p-8);
  p = fma(p, z, -0x1.b82ce3127c93ap-6);
  p = fma(p, z, 0x1.ce2f21a042ae6p-4);
  p = fma(p, z, -0x1.812746b0379e6p-2);
  return fma(p, z, 0x1.06eba8214db69p-3);
}
// exp(x^2) erfc(x) x for 0.5 <= x <= 28: a polynomial in (x - 3.75) / (x + 3.75).
EPWEAVE_HD double scaled_erfc(double x) {
  const double t = (x - 3.75) / (x + 3.75);
  double p = -0x1.0e2c0504b3cbap-30;
  p = fma(p, t, 0x1.dd284a6afb8aap-27);
  p = fma(p, t, 0x1.d1b3df31199a3p-28);
  p = fma(p, t, -0x1.21a1f3b961880p-23);
  p = fma(p, t, 0x1.0cc5d27c8e680p-27);
  p = fma(p, t, 0x1.01a9d5b4fa6ddp-20);
  p = fma(p, t, -0x1.b658f32c228b4p-21);
  p = fma(p, t, -0x1.98e0c61355d3dp-18);
  p = fma(p, t, 0x1.df48c613f5828p-17);
  p = fma(p, t, 0x1.932ef95456979p-16);
  p = fma(p, t, -0x1.62795c2664118p-13);
  p = fma(p, t, 0x1.d3d9a8ba8311fp-13);
  p = fma(p, t, 0x1.d2ebb3e5cb92ap-11);
  p = fma(p, t, -0x1.7a7494a3efdb8p-8);
  p = fma(p, t, 0x1.2bafe61f22678p-6);
  p = fma(p, t, -0x1.534c7e8cce3ddp-5);
  p = fma(p, t, 0x1.2d46400c7f8cbp-4);
  p = fma(p, t, -0x1.b0f6cdf1f0943p-4);
  p = fma(p, t, 0x1.f77f7d16da919p-4);
  p = fma(p, t, -0x1.c78586ee4a969p-4);
  p = fma(p, t, 0x1.10c15fea48f39p-4);
  return fma(p, t, 0x1.178842825349dp-1);
}
// erfc for x >= 0.5.
EPWEAVE_HD double erfc_tail(double x) {
  if (x > 27.5) return 0.0;
  const double square = x * x;
  const double rest = fma(x, x, -square);
  const double e = exp(-square);
  return fma(e, -rest, e) * (scaled_erfc(x) / x);
}
EPWEAVE_HD double erf(double x) {
  const double a = abs(x);
  if (a < 0.5) return fma(x, erf_ratio(x * x), x);
  if (is_nan(x)) return x + x;
  const double y = a > 6.0 ? 1.0 : 1.0 - erfc_tail(a);
  return x < 0 ? -y : y;
}
EPWEAVE_HD double erfc(double x) {
  const double a = abs(x);
  if (a < 0.5) return 1.0 - fma(x, erf_ratio(x * x), x);
  if (is_nan(x)) return x + x;
  return x < 0 ? 2.0 - erfc_tail(a) : erfc_tail(a);
}

// ---- the arc tangent ----------------------------------------------------------------------

// atan(x) for 0 <= x <= 1.
EPWEAVE_HD double atan_of_ratio(double x) {
  const bool is_upper = x > 0.41421356237309503;  // tan(pi/8)
  const double r = is_upper ? (x - 1.0) / (x + 1.0) : x;
  const double z = r * r;
  double p = 0x1.0aa87c56e3eb5p-6;
  p = fma(p, z, -0x1.1b2058fb5da30p-5);
  p = fma(p, z, 0x1.74d64aa665b0ap-5);
  p = fma(p, z, -0x1.ac78ec6b8cb98p-5);
  p = fma(p, z, 0x1.e199da4156fd9p-5);
  p = fma(p, z, -0x1.110e858a72e28p-4);
  p = fma(p, z, 0x1.3b1392b641b06p-4);
  p = fma(p, z, -0x1.745d165cb83aap-4);
  p = fma(p, z, 0x1.c71c71c2fe5d9p-4);
  p = fma(p, z, -0x1.249249248d768p-3);
  p = fma(p, z, 0x1.9999999999953p-3);
  p = fma(p, z, -0x1.5555555555555p-2);
  const double y = fma(r, z * p, r);
  return is_upper ? 0.785398163397448279 + (y + 3.061616997868383018e-17) : y;
}
// The angle of the point (x, y).
EPWEAVE_HD double atan2(double y, double x) {
  if (is_nan(x) || is_nan(y)) return x + y;
  const double infinity = double_of(0x7ff0000000000000u);
  const double a = abs(x), b = abs(y);
  const bool is_steep = b > a;
  const double large = is_steep ? b : a, small = is_steep ? a : b;
  const double ratio = large == 0 ? 0.0 : large == infinity ? (small == infinity ? 1.0 : 0.0) : small / large;
  double angle = atan_of_ratio(ratio);
  if (is_steep) angle = 1.570796326794896558 - (angle - 6.123233995736766036e-17);
  if ((bits_of(x) >> 63) != 0) angle = 3.141592653589793116 - (angle - 1.224646799147353207e-16);
  return (bits_of(y) >> 63) != 0 ? -angle : angle;
}

// ---- float --------------------------------------------------------------------------------

#define EPWEAVE_THROUGH_DOUBLE(name)                         \
  EPWEAVE_HD float name(float x) {                           \
    return static_cast<float>(name(static_cast<double>(x))); \
  }
EPWEAVE_THROUGH_DOUBLE(expm1)
EPWEAVE_THROUGH_DOUBLE(log1p)
EPWEAVE_THROUGH_DOUBLE(log2)
EPWEAVE_THROUGH_DOUBLE(exp2)
EPWEAVE_THROUGH_DOUBLE(erf)
EPWEAVE_THROUGH_DOUBLE(erfc)
#undef EPWEAVE_THROUGH_DOUBLE
EPWEAVE_HD float pow(float x, float y) {
  return static_cast<float>(pow(static_cast<double>(x), static_cast<double>(y)));
}
EPWEAVE_HD float atan2(float y, float x) {
  return static_cast<float>(atan2(static_cast<double>(y), static_cast<double>(x)));
}

// ---- activations --------------------------------------------------------------------------
// All take the element as double and give double; who stores rounds.

// log(1 + exp(beta x)) / beta; x itself where beta x exceeds the threshold.
EPWEAVE_HD double softplus(double x, double beta, double threshold) {
  const double z = x * beta;
  if (z > threshold) return x;
  return (z > 0 ? z + log1p(exp(-z)) : log1p(exp(z))) / beta;
}
// grad sigmoid(beta x); grad itself above the threshold.
EPWEAVE_HD double softplus_backward(double grad, double x, double beta, double threshold) {
  const double z = x * beta;
  return z > threshold ? grad : grad * sigmoid(z);
}
EPWEAVE_HD double log_sigmoid(double x) {
  const double low = x < 0 ? x : 0.0;
  return is_nan(x) ? x : low - log1p(exp(-abs(x)));
}
EPWEAVE_HD double log_sigmoid_backward(double grad, double x) {
  return grad * sigmoid(-x);
}

// x tanh(log(1 + exp(x))).
EPWEAVE_HD double mish(double x) {
  return x * tanh(log1p(exp(x)));
}
EPWEAVE_HD double mish_backward(double grad, double x) {
  const double t = tanh(log1p(exp(x)));
  return grad * (t + x * sigmoid(x) * (1 - t * t));
}

// Minus the logarithm of the probability x of a target t; of logarithms at most 100 is taken.
EPWEAVE_HD double cross_entropy(double x, double t) {
  const double no = log1p(-x), yes = log(x);
  return (t - 1) * (no < -100 ? -100 : no) - t * (yes < -100 ? -100 : yes);
}
EPWEAVE_HD double logits_cross_entropy(double x, double t, double weight) {
  return (1 - t) * x - ((weight - 1) * t + 1) * log_sigmoid(x);
}

// log(exp(x) + exp(y)). Of two equal infinities: it.
EPWEAVE_HD double log_add_exp(double x, double y) {
  if (is_nan(x) || is_nan(y)) return x + y;
  if (x == y) return x + 0.69314718055994530942;
  const double high = x > y ? x : y, low = x > y ? y : x;
  return high + log1p(exp(low - high));
}

// x times the normal distribution function.
EPWEAVE_HD double gelu(double x) {
  return x * (0.5 * erfc(-x * 0.70710678118654752440));
}
EPWEAVE_HD double gelu_backward(double grad, double x) {
  const double below = 0.5 * erfc(-x * 0.70710678118654752440);
  const double density = exp(-0.5 * x * x) * 0.39894228040143267794;
  return grad * fma(x, density, below);
}
// The approximation x (1 + tanh(v)) / 2 = x sigmoid(2 v) with v = sqrt(2 / pi) (x + 0.044715 x^3).
EPWEAVE_HD double gelu_tanh_angle(double x) {
  return 0.79788456080286535588 * fma(0.044715 * x * x, x, x);
}
EPWEAVE_HD double gelu_tanh(double x) {
  return x * sigmoid(2.0 * gelu_tanh_angle(x));
}
EPWEAVE_HD double gelu_tanh_backward(double grad, double x) {
  const double v = 2.0 * gelu_tanh_angle(x);
  const double above = sigmoid(v), below = sigmoid(-v);
  const double slope = 0.79788456080286535588 * fma(0.134145 * x, x, 1.0);
  return grad * fma(2.0 * x * slope, above * below, above);
}

}  // namespace epweave::math
