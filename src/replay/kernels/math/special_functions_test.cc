#include "replay/kernels/math/special_functions.h"

#include "replay/kernels/math/ulp_test.h"

namespace epweave::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

long double exact_softplus(long double x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}
long double exact_log_sigmoid(long double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}
long double exact_gelu(long double x) {
  return x * 0.5L * std::erfc(-x * 0.707106781186547524400844362104849039L);
}
// The constants as torch has them, in double.
long double exact_gelu_tanh(long double x) {
  const long double v =
      static_cast<long double>(0.79788456080286535588) * (x + static_cast<long double>(0.044715) * x * x * x);
  return x / (1 + std::exp(-2 * v));
}

// The same sign, and the same but for `relative`; both NaN.
bool is_like(double got, double want, double relative) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::signbit(got) != std::signbit(want)) return false;
  return got == want || std::fabs(got - want) <= relative * std::fabs(want);
}

// The largest error of f over pairs of samples, each beyond what `allowed(x, y)` gives.
template <class F, class Exact, class Allowed>
double worst_excess(const F& f, const Exact& exact, const Allowed& allowed) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-40, 40), power(-30, 30);
  double most = 0;
  for (int i = 0; i < 200000; ++i) {
    const double x = std::exp(exponent(random)), y = power(random);
    const double excess = ulps<double>(f(x, y), exact(x, y)) - allowed(x, y);
    if (excess > most) {
      most = excess;
      UNSCOPED_INFO("at " << x << ", " << y << ": " << most << " ulp too many");
    }
  }
  return most;
}

}  // namespace

#define EPWEAVE_CHECK_BOUND(T, low, high, function, exact, bound) \
  CHECK(worst<T>(                                                 \
            low, high, [](T element) { return static_cast<T>(function(element)); }, exact) <= bound)

TEST_CASE("exponentials, logarithms and the error function stay within their stated bounds") {
  const auto expm1_of = [](long double x) { return std::expm1(x); };
  const auto log1p_of = [](long double x) { return std::log1p(x); };
  const auto log2_of = [](long double x) { return std::log2(x); };
  const auto exp2_of = [](long double x) { return std::exp2(x); };
  const auto erf_of = [](long double x) { return std::erf(x); };
  const auto erfc_of = [](long double x) { return std::erfc(x); };
  EPWEAVE_CHECK_BOUND(float, -20, 89, expm1, expm1_of, 1.0);
  EPWEAVE_CHECK_BOUND(float, -1, 4, log1p, log1p_of, 1.0);
  EPWEAVE_CHECK_BOUND(float, 0, 4, log2, log2_of, 1.0);
  EPWEAVE_CHECK_BOUND(float, -150, 128, exp2, exp2_of, 1.0);
  EPWEAVE_CHECK_BOUND(float, -4, 4, erf, erf_of, 1.0);
  EPWEAVE_CHECK_BOUND(float, -6, 11, erfc, erfc_of, 1.0);
  EPWEAVE_CHECK_BOUND(double, -40, 710, expm1, expm1_of, 2.0);
  EPWEAVE_CHECK_BOUND(double, -1.5, 1.5, expm1, expm1_of, 2.0);
  EPWEAVE_CHECK_BOUND(double, -1, 4, log1p, log1p_of, 2.0);
  EPWEAVE_CHECK_BOUND(double, 0, 4, log2, log2_of, 3.0);
  EPWEAVE_CHECK_BOUND(double, -1080, 1024, exp2, exp2_of, 1.0);
  EPWEAVE_CHECK_BOUND(double, -7, 7, erf, erf_of, 4.0);
  EPWEAVE_CHECK_BOUND(double, -7, 28, erfc, erfc_of, 6.0);
}

TEST_CASE("activations stay within their stated bounds") {
  EPWEAVE_CHECK_BOUND(
      float, -110, 110, [](double x) { return softplus(x, 1.0, 20.0); }, exact_softplus, 1.0);
  EPWEAVE_CHECK_BOUND(float, -110, 110, log_sigmoid, exact_log_sigmoid, 1.0);
  EPWEAVE_CHECK_BOUND(double, -750, 750, log_sigmoid, exact_log_sigmoid, 4.0);
  // Where the result underflows the factor is denormal: beyond -37 (gelu_tanh: -19) nothing is
  // promised.
  EPWEAVE_CHECK_BOUND(
      float, -10, 10, [](double x) { return x < -37 ? static_cast<double>(exact_gelu(x)) : gelu(x); },
      exact_gelu, 1.0);
  EPWEAVE_CHECK_BOUND(
      float, -10, 10,
      [](double x) { return x < -19 ? static_cast<double>(exact_gelu_tanh(x)) : gelu_tanh(x); },
      exact_gelu_tanh, 1.0);
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> linear(-30, 30);
  for (int i = 0; i < 100000; ++i) {
    const double x = linear(random);
    const double allowed = x < 0 ? 8 + 2 * x * x : 6;
    if (ulps<double>(gelu(x), exact_gelu(x)) <= allowed) continue;
    CAPTURE(x, ulps<double>(gelu(x), exact_gelu(x)));
    FAIL_CHECK("gelu");
    break;
  }
}

TEST_CASE("the derivatives of gelu are off by at most four unit roundoffs of the gradient") {
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> linear(-12, 12);
  double most = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = linear(random);
    const long double wide = x, density = std::exp(-0.5L * wide * wide) * 0.398942280401432677939946L;
    const long double exact = 0.5L * std::erfc(-wide * 0.707106781186547524400844L) + wide * density;
    most = std::max(most, static_cast<double>(std::fabs(gelu_backward(1.0, x) - exact)));
    const long double c = 0.79788456080286535588,
                      v = c * (wide + static_cast<long double>(0.044715) * wide * wide * wide);
    const long double s = 1 / (1 + std::exp(-2 * v));
    const long double slope = c * (1 + 3 * static_cast<long double>(0.044715) * wide * wide);
    most = std::max(most, static_cast<double>(
                              std::fabs(gelu_tanh_backward(1.0, x) - (s + 2 * wide * s * (1 - s) * slope))));
  }
  CHECK(most <= 4 * 1.1102230246251565e-16);
}

TEST_CASE("powers and angles stay within their stated bounds") {
  CHECK(worst_excess([](double x, double y) { return pow(x, y); },
                     [](long double x, long double y) { return std::pow(x, y); },
                     [](double x, double y) { return 2 + 2 * std::fabs(y * std::log(x)); }) == 0);
  for (const double sign : {1.0, -1.0})
    CHECK(worst_excess([&](double x, double y) { return atan2(y, sign * x); },
                       [&](long double x, long double y) { return std::atan2(y, sign * x); },
                       [](double, double) { return 3.0; }) == 0);
}

TEST_CASE("edges of powers and angles are C's") {
  const double edges[] = {0.0,  -0.0, 1.0,  -1.0,      2.0,        -2.0,        3.0,
                          -3.0, 0.5,  -0.5, kInfinity, -kInfinity, kNotANumber, 9007199254740992.0};
  for (const double x : edges)
    for (const double y : edges) {
      CAPTURE(x, y);
      CHECK(is_like(pow(x, y), std::pow(x, y), 1e-13));
      CHECK(is_like(atan2(x, y), std::atan2(x, y), 1e-15));
    }
}

TEST_CASE("edges of exponentials, logarithms and activations") {
  CHECK(bits_of(expm1(-0.0)) == bits_of(-0.0));
  CHECK(expm1(kInfinity) == kInfinity);
  CHECK(expm1(-kInfinity) == -1.0);
  CHECK(log1p(-1.0) == -kInfinity);
  CHECK(std::isnan(log1p(-1.5)));
  CHECK(log1p(kInfinity) == kInfinity);
  CHECK(log2(0.0) == -kInfinity);
  CHECK(std::isnan(log2(-1.0)));
  CHECK(log2(kInfinity) == kInfinity);
  CHECK(log2(0x1p-1074) == -1074.0);
  CHECK(log2(0x1p1023) == 1023.0);
  CHECK(exp2(10.0) == 1024.0);
  CHECK(exp2(-1074.0) == 0x1p-1074);
  CHECK(exp2(1024.0) == kInfinity);
  CHECK(exp2(-kInfinity) == 0.0);
  CHECK(erf(kInfinity) == 1.0);
  CHECK(erf(-kInfinity) == -1.0);
  CHECK(erfc(kInfinity) == 0.0);
  CHECK(erfc(-kInfinity) == 2.0);
  CHECK(bits_of(erf(-0.0)) == bits_of(-0.0));
  CHECK(softplus(kInfinity, 1.0, 20.0) == kInfinity);
  CHECK(softplus(-kInfinity, 1.0, 20.0) == 0.0);
  CHECK(log_sigmoid(-kInfinity) == -kInfinity);
  CHECK(gelu(kInfinity) == kInfinity);
  for (double (*f)(double) :
       {+[](double x) { return expm1(x); }, +[](double x) { return log1p(x); },
        +[](double x) { return log2(x); }, +[](double x) { return exp2(x); },
        +[](double x) { return erf(x); }, +[](double x) { return erfc(x); },
        +[](double x) { return gelu(x); }, +[](double x) { return gelu_tanh(x); },
        +[](double x) { return log_sigmoid(x); }, +[](double x) { return softplus(x, 1.0, 20.0); }})
    CHECK(std::isnan(f(kNotANumber)));
}

}  // namespace epweave::math
