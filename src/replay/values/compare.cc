#include "replay/values/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "replay/kernels/math/portable_math.h"
#include "replay/values/evaluate.h"
#include "replay/values/hash.h"
#include "replay/values/row_major.h"

namespace epweave::replay {
namespace {

// How the numbers of a complex tensor are read: as twice as many real ones.
struct Numbers {
  DType dtype;
  std::size_t bytes;
};
std::optional<Numbers> numbers_of(DType dtype) {
  switch (dtype) {
    case DType::kComplex64:
      return Numbers{DType::kFloat32, 4};
    case DType::kBool:
    case DType::kUint8:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kFloat32:
    case DType::kFloat64:
      return Numbers{dtype, info(dtype).bytes};
    default:
      return std::nullopt;
  }
}

// Calls visit(number) for each number, in order.
template <class Visit>
void visit_numbers(const RowMajor& bytes, DType dtype, const Visit& visit) {
  const auto visit_as = [&](auto element, const auto& to_double) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof element) {
      std::memcpy(&element, bytes.data() + at, sizeof element);
      visit(to_double(element));
    }
  };
  switch (dtype) {
    case DType::kFloat32:
      return visit_as(float{}, [](float x) { return static_cast<double>(x); });
    case DType::kBfloat16:
      return visit_as(std::uint16_t{},
                      [](std::uint16_t x) { return static_cast<double>(math::float_from_bf16(x)); });
    default:
      for (std::size_t at = 0; at < bytes.size(); at += info(dtype).bytes)
        visit(load_number(bytes.data() + at, dtype));
  }
}

// Of a complex128, of its real part.
std::uint64_t read_bits(const std::byte* element, std::size_t bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, std::min(bytes, sizeof bits));
  return bits;
}

// Position of a float's bit pattern on the line of all floats of its width.
std::int64_t order_of(std::uint64_t bits, std::size_t bytes) {
  const std::uint64_t sign = std::uint64_t{1} << (8 * bytes - 1);
  return (bits & sign) != 0 ? -static_cast<std::int64_t>(bits & (sign - 1)) : static_cast<std::int64_t>(bits);
}

// Whether a word of the tensor's elements has what is sought, as is_sought(floats, word) says.
template <class Predicate>
bool has_float(const Tensor& tensor, const Predicate& is_sought) {
  const math::FloatsInWord floats = floats_of(tensor.dtype);
  if (floats.signs == 0) return false;
  const RowMajor bytes(tensor);
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t))
    if (is_sought(floats, read_bits(bytes.data() + at, sizeof(std::uint64_t)))) return true;
  return at < bytes.size() && is_sought(floats, read_bits(bytes.data() + at, bytes.size() - at));
}

}  // namespace

std::optional<double> find_norm(const Tensor& tensor) {
  const auto numbers = numbers_of(tensor.dtype);
  if (!numbers) return std::nullopt;
  const RowMajor bytes(tensor);
  double sum = 0;
  visit_numbers(bytes, numbers->dtype, [&](double value) { sum += value * value; });
  return std::sqrt(sum);
}

bool has_only_finite(const Tensor& tensor) {
  return numbers_of(tensor.dtype).has_value() && !has_not_finite(tensor);
}

bool has_not_finite(const Tensor& tensor) {
  return has_float(tensor, [](const math::FloatsInWord& floats, std::uint64_t word) {
    return floats.has_not_finite(word);
  });
}

bool has_nan(const Tensor& tensor) {
  return has_float(tensor,
                   [](const math::FloatsInWord& floats, std::uint64_t word) { return floats.has_nan(word); });
}

std::string find_misfit(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype)
    return fmt::format("dtypes {} and {}", info(a.dtype).short_name, info(b.dtype).short_name);
  if (a.sizes != b.sizes)
    return fmt::format("sizes [{}] and [{}]", fmt::join(a.sizes, ", "), fmt::join(b.sizes, ", "));
  return {};
}

TensorDifference compare_tensors(const Tensor& a, const Tensor& b) {
  TensorDifference difference;
  difference.problem = find_misfit(a, b);
  if (!difference.problem.empty()) return difference;
  const RowMajor bytes_a(a), bytes_b(b);
  if (bytes_a.size() == 0 || std::memcmp(bytes_a.data(), bytes_b.data(), bytes_a.size()) == 0)
    return difference;
  const math::FloatsInWord floats = floats_of(a.dtype);
  const auto numbers = numbers_of(a.dtype);
  const std::size_t width = a.element_bytes();
  double error = 0, magnitude = 0;
  for (std::size_t at = 0; at < bytes_a.size(); at += width) {
    std::uint64_t bits_a = 0, bits_b = 0;
    bool differs = std::memcmp(bytes_a.data() + at, bytes_b.data() + at, width) != 0;
    if (differs) {
      bits_a = floats.unify(read_bits(bytes_a.data() + at, width));
      bits_b = floats.unify(read_bits(bytes_b.data() + at, width));
      differs = floats.signs == 0 || bits_a != bits_b;
    }
    if (differs && difference.differing++ == 0) {
      difference.index = static_cast<std::int64_t>(at / width);
      difference.bits_a = fmt::format("0x{:0{}x}", bits_a, 2 * width);
      difference.bits_b = fmt::format("0x{:0{}x}", bits_b, 2 * width);
      if (numbers) {
        difference.value_a = load_number(bytes_a.data() + at, numbers->dtype);
        difference.value_b = load_number(bytes_b.data() + at, numbers->dtype);
      }
      if (is_floating(a.dtype) && difference.value_a == difference.value_a &&
          difference.value_b == difference.value_b) {
        const std::int64_t order_a = order_of(bits_a, width), order_b = order_of(bits_b, width);
        difference.ulp = order_a > order_b
                             ? static_cast<std::uint64_t>(order_a) - static_cast<std::uint64_t>(order_b)
                             : static_cast<std::uint64_t>(order_b) - static_cast<std::uint64_t>(order_a);
      }
    }
    for (std::size_t part = 0; numbers && part < width; part += numbers->bytes) {
      const double value = load_number(bytes_a.data() + at + part, numbers->dtype);
      const double other = load_number(bytes_b.data() + at + part, numbers->dtype);
      // What is infinite or NaN in both says nothing of how far the others are off.
      const bool is_same = value == other || (value != value && other != other);
      if (!is_same || std::isfinite(value)) magnitude += value * value;
      if (!is_same) error += (value - other) * (value - other);
    }
  }
  if (difference.differing != 0)
    difference.relative_error = magnitude > 0 ? std::sqrt(error / magnitude) : std::sqrt(error);
  return difference;
}

std::string describe(const TensorDifference& difference) {
  if (!difference.problem.empty()) return difference.problem;
  if (difference.is_equal()) return "equal";
  return fmt::format("first at {}: {} ({}) and {} ({}){}; {} elements differ, relative error {:.3g}",
                     difference.index, difference.bits_a, difference.value_a, difference.bits_b,
                     difference.value_b, difference.ulp ? fmt::format(", {} ULP", *difference.ulp) : "",
                     difference.differing, difference.relative_error);
}

}  // namespace epweave::replay
