// Elements as they are stored and as they are computed with, the same on the CPU and the GPU.
//
// A kernel computes in one of four types: float for the 16-bit floats and float32, double, int64
// for integers and bool, Complex. `load_element` and `store_element` convert as torch's cast does:
// rounded to nearest (ties to even), integers wrap, a float that no integer holds saturates and NaN
// becomes 0. C++17 inside; nothing but portable_math.h, so that device code includes it.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "replay/kernels/math/portable_math.h"

namespace epweave::math {

// complex64: two floats in memory.
class Complex {
 public:
  EPWEAVE_HD Complex(float real = 0, float imag = 0) : real_(real), imag_(imag) {}  // NOLINT: as std::complex
  EPWEAVE_HD float real() const { return real_; }
  EPWEAVE_HD float imag() const { return imag_; }

 private:
  float real_, imag_;
};
EPWEAVE_HD bool operator==(Complex a, Complex b) {
  return a.real() == b.real() && a.imag() == b.imag();
}
EPWEAVE_HD bool operator!=(Complex a, Complex b) {
  return !(a == b);
}
EPWEAVE_HD Complex operator+(Complex a, Complex b) {
  return {a.real() + b.real(), a.imag() + b.imag()};
}
EPWEAVE_HD Complex operator-(Complex a, Complex b) {
  return {a.real() - b.real(), a.imag() - b.imag()};
}
EPWEAVE_HD Complex operator*(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}
EPWEAVE_HD Complex operator-(Complex a) {
  return {-a.real(), -a.imag()};
}

template <class C>
constexpr bool is_int = std::is_same_v<C, std::int64_t>;
template <class C>
constexpr bool is_complex_type = std::is_same_v<C, Complex>;
template <class C>
constexpr bool is_real_float = std::is_same_v<C, float> || std::is_same_v<C, double>;

// float to integer as x86 and CUDA differ out of range: here it saturates and NaN is 0.
EPWEAVE_HD std::int64_t integer_from(double x) {
  if (!(x == x)) return 0;
  if (x >= 9223372036854775808.0) return INT64_MAX;
  if (x < -9223372036854775808.0) return INT64_MIN;
  return static_cast<std::int64_t>(x);
}

// The types above, of a dtype.
enum class Compute : std::uint8_t { kFloat, kDouble, kInt, kComplex };

// A value of one type as another: C and S are compute types or stored types but the 16-bit floats.
template <class C, class S>
EPWEAVE_HD C convert(S value) {
  if constexpr (is_complex_type<C>) {
    if constexpr (is_complex_type<S>)
      return value;
    else
      return Complex(static_cast<float>(value), 0.0f);
  } else if constexpr (is_complex_type<S>) {
    return convert<C>(value.real());
  } else if constexpr (std::is_integral_v<C> && std::is_floating_point_v<S>) {
    return integer_from(static_cast<double>(value));
  } else {
    return static_cast<C>(value);
  }
}

// How an element lies in memory.
enum class Stored : std::uint8_t {
  kBool,
  kUint8,
  kInt8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kBfloat16,
  kFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
};

template <class S>
EPWEAVE_HD S read_stored(const void* base, std::int64_t at) {
  return static_cast<const S*>(base)[at];
}
template <class S>
EPWEAVE_HD void write_stored(void* base, std::int64_t at, S value) {
  static_cast<S*>(base)[at] = value;
}

template <class C>
EPWEAVE_HD C load_element(const void* base, Stored stored, std::int64_t at) {
  switch (stored) {
    case Stored::kBool:
      return convert<C>(read_stored<std::uint8_t>(base, at) != 0 ? 1 : 0);
    case Stored::kUint8:
      return convert<C>(read_stored<std::uint8_t>(base, at));
    case Stored::kInt8:
      return convert<C>(read_stored<std::int8_t>(base, at));
    case Stored::kInt16:
      return convert<C>(read_stored<std::int16_t>(base, at));
    case Stored::kUint16:
      return convert<C>(read_stored<std::uint16_t>(base, at));
    case Stored::kInt32:
      return convert<C>(read_stored<std::int32_t>(base, at));
    case Stored::kUint32:
      return convert<C>(read_stored<std::uint32_t>(base, at));
    case Stored::kInt64:
      return convert<C>(read_stored<std::int64_t>(base, at));
    case Stored::kBfloat16:
      return convert<C>(float_from_bf16(read_stored<std::uint16_t>(base, at)));
    case Stored::kFloat16:
      return convert<C>(float_from_fp16(read_stored<std::uint16_t>(base, at)));
    case Stored::kFloat32:
      return convert<C>(read_stored<float>(base, at));
    case Stored::kFloat64:
      return convert<C>(read_stored<double>(base, at));
    case Stored::kComplex64:
      break;
  }
  return convert<C>(read_stored<Complex>(base, at));
}

template <class I, class C>
EPWEAVE_HD I wrap(C value) {
  return static_cast<I>(static_cast<std::uint64_t>(convert<std::int64_t>(value)));
}

template <class C>
EPWEAVE_HD void store_element(void* base, Stored stored, std::int64_t at, C value) {
  switch (stored) {
    case Stored::kBool:
      return write_stored<std::uint8_t>(base, at, value != C(0) ? 1 : 0);
    case Stored::kUint8:
      return write_stored(base, at, wrap<std::uint8_t>(value));
    case Stored::kInt8:
      return write_stored(base, at, wrap<std::int8_t>(value));
    case Stored::kInt16:
      return write_stored(base, at, wrap<std::int16_t>(value));
    case Stored::kUint16:
      return write_stored(base, at, wrap<std::uint16_t>(value));
    case Stored::kInt32:
      return write_stored(base, at, wrap<std::int32_t>(value));
    case Stored::kUint32:
      return write_stored(base, at, wrap<std::uint32_t>(value));
    case Stored::kInt64:
      return write_stored(base, at, wrap<std::int64_t>(value));
    case Stored::kBfloat16:
      return write_stored(base, at, bf16_from_float(convert<float>(value)));
    case Stored::kFloat16:
      return write_stored(base, at, fp16_from_float(convert<float>(value)));
    case Stored::kFloat32:
      return write_stored(base, at, convert<float>(value));
    case Stored::kFloat64:
      return write_stored(base, at, convert<double>(value));
    case Stored::kComplex64:
      return write_stored(base, at, convert<Complex>(value));
  }
}

}  // namespace epweave::math
