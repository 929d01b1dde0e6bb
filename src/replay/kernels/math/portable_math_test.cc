#include "replay/kernels/math/portable_math.h"

#include "replay/kernels/math/ulp_test.h"

namespace epweave::math {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

long double exact_sigmoid(long double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
long double exact_silu(long double x) {
  return x * exact_sigmoid(x);
}
// Where sigmoid is denormal, silu is that times x: no bound in units of the last place holds.
template <class T>
T silu_in_range(T x) {
  const T lowest = sizeof(T) == 4 ? T(-87) : T(-708);
  return x < lowest ? static_cast<T>(exact_silu(x)) : silu(x);
}
// long double has no argument reduction for large angles that is exact to a double's last place
// everywhere; glibc's has.
long double exact_sin(long double x) {
  return std::sin(x);
}
long double exact_cos(long double x) {
  return std::cos(x);
}

}  // namespace

TEST_CASE("elementary functions stay within their stated bounds") {
  SECTION("float exp") {
    CHECK(worst<float>(
              -110, 95, [](float x) { return exp(x); }, [](long double x) { return std::exp(x); }) <= 1.0);
  }
  SECTION("float log") {
    CHECK(worst<float>(
              0, 4, [](float x) { return log(x); }, [](long double x) { return std::log(x); }) <= 1.0);
  }
  SECTION("float sin") {
    CHECK(worst<float>(
              -1000, 1000, [](float x) { return sin(x); }, exact_sin) <= 1.0);
  }
  SECTION("float cos") {
    CHECK(worst<float>(
              -1000, 1000, [](float x) { return cos(x); }, exact_cos) <= 1.0);
  }
  SECTION("float rsqrt") {
    CHECK(worst<float>(
              0, 100, [](float x) { return rsqrt(x); }, [](long double x) { return 1 / std::sqrt(x); }) <=
          1.0);
  }
  SECTION("float sigmoid") {
    CHECK(worst<float>(
              -110, 110, [](float x) { return sigmoid(x); }, exact_sigmoid) <= 2.0);
  }
  SECTION("float silu") {
    CHECK(worst<float>(
              -80, 80, [](float x) { return silu_in_range(x); }, exact_silu) <= 3.0);
  }
  SECTION("float tanh") {
    CHECK(worst<float>(
              -12, 12, [](float x) { return tanh(x); }, [](long double x) { return std::tanh(x); }) <= 1.0);
  }
  SECTION("double exp") {
    CHECK(worst<double>(
              -750, 712, [](double x) { return exp(x); }, [](long double x) { return std::exp(x); }) <= 1.0);
  }
  SECTION("double log") {
    CHECK(worst<double>(
              0, 4, [](double x) { return log(x); }, [](long double x) { return std::log(x); }) <= 1.0);
  }
  SECTION("double sin") {
    CHECK(worst<double>(
              -1000, 1000, [](double x) { return sin(x); }, exact_sin) <= 1.0);
  }
  SECTION("double cos") {
    CHECK(worst<double>(
              -1000, 1000, [](double x) { return cos(x); }, exact_cos) <= 1.0);
  }
  SECTION("double angles around the change of reduction") {
    CHECK(worst<double>(
              1048000, 1050000, [](double x) { return sin(x); }, exact_sin) <= 1.0);
  }
  SECTION("double rsqrt") {
    CHECK(worst<double>(
              0, 100, [](double x) { return rsqrt(x); }, [](long double x) { return 1 / std::sqrt(x); }) <=
          2.0);
  }
  SECTION("double sigmoid") {
    CHECK(worst<double>(
              -750, 750, [](double x) { return sigmoid(x); }, exact_sigmoid) <= 3.0);
  }
  SECTION("double silu") {
    CHECK(worst<double>(
              -700, 700, [](double x) { return silu_in_range(x); }, exact_silu) <= 4.0);
  }
  SECTION("double tanh") {
    CHECK(worst<double>(
              -22, 22, [](double x) { return tanh(x); }, [](long double x) { return std::tanh(x); }) <= 8.0);
  }
}

TEST_CASE("edges of elementary functions") {
  CHECK(exp(kInf) == kInf);
  CHECK(exp(-kInf) == 0.0f);
  CHECK(exp(0.0f) == 1.0f);
  CHECK(exp(-0.0f) == 1.0f);
  CHECK(exp(88.72283f) < kInf);
  CHECK(exp(88.72284f) == kInf);
  CHECK(exp(-103.9f) > 0.0f);
  CHECK(exp(-104.5f) == 0.0f);
  CHECK(log(0.0f) == -kInf);
  CHECK(log(-0.0f) == -kInf);
  CHECK(std::isnan(log(-1.0f)));
  CHECK(log(kInf) == kInf);
  CHECK(bits_of(log(1.0f)) == 0u);
  CHECK(std::isnan(sin(kInf)));
  CHECK(bits_of(sin(-0.0f)) == 0x80000000u);
  CHECK(bits_of(tanh(-0.0f)) == 0x80000000u);
  CHECK(tanh(kInf) == 1.0f);
  CHECK(tanh(-kInf) == -1.0f);
  CHECK(sigmoid(kInf) == 1.0f);
  CHECK(sigmoid(-kInf) == 0.0f);
  CHECK(sigmoid(0.0f) == 0.5f);
  CHECK(rsqrt(0.0f) == kInf);
  CHECK(std::isnan(rsqrt(-1.0f)));
  for (float (*f)(float) : {+[](float x) { return exp(x); }, +[](float x) { return log(x); },
                            +[](float x) { return sin(x); }, +[](float x) { return cos(x); },
                            +[](float x) { return tanh(x); }, +[](float x) { return sigmoid(x); },
                            +[](float x) { return silu(x); }, +[](float x) { return rsqrt(x); }})
    CHECK(std::isnan(f(kNan)));
}

TEST_CASE("bfloat16 and float16 round to the nearest, ties to even") {
  std::uint32_t wrong = 0;
  for (std::uint32_t h = 0; h < 0x10000; ++h) {
    const float bf = float_from_bf16(static_cast<std::uint16_t>(h)),
                fp = float_from_fp16(static_cast<std::uint16_t>(h));
    if (!is_nan(bf) && bf16_from_float(bf) != h) ++wrong;
    if (!is_nan(fp) && fp16_from_float(fp) != h) ++wrong;
    // Between neighbours: the middle goes to the even one, its neighbours to the nearer one.
    const std::uint32_t next = h + 1;
    if ((h & 0x7fffu) < 0x7c00u) {
      const float up = (next & 0x7fffu) == 0x7c00u ? std::copysign(65536.0f, fp)
                                                   : float_from_fp16(static_cast<std::uint16_t>(next));
      const float middle = (fp + up) / 2;
      const std::uint32_t even = (h & 1u) == 0 ? h : next;
      if (fp16_from_float(middle) != even) ++wrong;
      if (fp16_from_float(std::nextafter(middle, fp)) != h) ++wrong;
      if (fp16_from_float(std::nextafter(middle, up)) != next) ++wrong;
    }
    if ((h & 0x7fffu) < 0x7f80u) {
      const std::uint32_t middle = (h << 16) | 0x8000u;
      const std::uint32_t even = (h & 1u) == 0 ? h : next;
      if (bf16_from_float(float_of(middle)) != even) ++wrong;
      if (bf16_from_float(float_of(middle - 1)) != h) ++wrong;
      if (bf16_from_float(float_of(middle + 1)) != next) ++wrong;
    }
  }
  CHECK(wrong == 0);
  CHECK(bf16_from_float(kNan) == 0x7fc0);
  CHECK(fp16_from_float(kNan) == 0x7e00);
  CHECK(fp16_from_float(kInf) == 0x7c00);
  CHECK(bf16_from_float(std::numeric_limits<float>::max()) == 0x7f80);
}

// All of them were tried once: any reciprocal that is off by a unit does, but for 1 / (2 - 2^-23),
// which takes the nearest one alone.
TEST_CASE("a quotient by a reciprocal that is off by a unit is that of a division") {
  const std::uint32_t least = bits_of(0x1p-26F), one = bits_of(1.0F);
  for (std::uint32_t i = least; i < one - 2; i += 997) {
    const float e = float_of(i), d = 1.0F + e;
    for (const std::uint32_t off : {~std::uint32_t{0}, 0U, 1U})
      for (const float n : {e, 1.0F}) {
        const float found = divide_by_reciprocal(n, d, float_of(bits_of(1.0F / d) + off));
        if (found != n / d) FAIL(i << " " << off << ": " << n << " / " << d << " is not " << found);
      }
  }
  CHECK(divide_by_reciprocal(0x1p-149F, 1.0F, 1.0F) == 0x1p-149F);
  CHECK(divide_by_reciprocal(0.0F, 1.0F, 1.0F) == 0.0F);
}

}  // namespace epweave::math
