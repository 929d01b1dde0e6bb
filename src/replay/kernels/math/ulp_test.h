// How far a function is from its exact value, in units of the last place. For tests.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace epweave::math {

// The distance in units of the last place of T at the exact value.
template <class T>
double ulps(T got, long double exact) {
  if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) && std::isnan(exact) ? 0 : 1e30;
  const T rounded = static_cast<T>(exact);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : 1e30;
  int exponent = 0;
  std::frexp(rounded, &exponent);
  const int lowest = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  const int unit = std::max(exponent - std::numeric_limits<T>::digits, lowest);
  return static_cast<double>(std::fabs((static_cast<long double>(got) - exact) / std::ldexp(1.0L, unit)));
}

// A spread of inputs: every exponent, random mantissas, both signs, the edges.
template <class T>
std::vector<T> samples(T low, T high) {
  std::mt19937_64 random(1);
  std::vector<T> all = {T(0),
                        -T(0),
                        T(1),
                        -T(1),
                        std::numeric_limits<T>::min(),
                        -std::numeric_limits<T>::min(),
                        std::numeric_limits<T>::denorm_min(),
                        std::numeric_limits<T>::max(),
                        -std::numeric_limits<T>::max()};
  std::uniform_real_distribution<double> linear(static_cast<double>(low), static_cast<double>(high));
  for (int i = 0; i < 200000; ++i) all.push_back(static_cast<T>(linear(random)));
  const int first = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  for (int e = first; e < std::numeric_limits<T>::max_exponent; ++e)
    for (int i = 0; i < 200; ++i) {
      const double mantissa = 1.0 + static_cast<double>(random() >> 12) * 0x1p-52;
      const T x = static_cast<T>(std::ldexp(static_cast<long double>(mantissa), e));
      all.push_back(i % 2 == 0 ? x : -x);
    }
  return all;
}

template <class T, class F, class Exact>
double worst(T low, T high, const F& f, const Exact& exact) {
  double most = 0;
  for (T x : samples(low, high)) {
    const double error = ulps<T>(f(x), exact(static_cast<long double>(x)));
    if (error > most) {
      most = error;
      UNSCOPED_INFO("at " << static_cast<double>(x) << ": " << most << " ulp");
    }
  }
  return most;
}

}  // namespace epweave::math
