#include "replay/compare.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "replay/evaluate.h"

namespace epweave::replay {
namespace {

constexpr std::uint64_t kHashStart = 0xcbf29ce484222325;
constexpr std::uint64_t kHashPrime = 0x100000001b3;

std::uint64_t hash_bytes(const std::byte* bytes, std::size_t count, std::uint64_t hash) {
  for (std::size_t i = 0; i < count; ++i)
    hash = (hash ^ std::to_integer<std::uint64_t>(bytes[i])) * kHashPrime;
  return hash;
}

template <class T>
std::uint64_t hash_value(T value, std::uint64_t hash) {
  std::byte bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  return hash_bytes(bytes, sizeof value, hash);
}

std::vector<std::byte> dense_bytes(const Tensor& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.numel()) * tensor.element_bytes());
  gather_elements(tensor, bytes.data());
  return bytes;
}

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

std::uint64_t read_bits(const std::byte* element, std::size_t bytes) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, element, bytes);
  return bits;
}

// Position of a float's bit pattern on the line of all floats of its width.
std::int64_t order_of(std::uint64_t bits, std::size_t bytes) {
  const std::uint64_t sign = std::uint64_t{1} << (8 * bytes - 1);
  return (bits & sign) != 0 ? -static_cast<std::int64_t>(bits & (sign - 1)) : static_cast<std::int64_t>(bits);
}

}  // namespace

std::uint64_t hash_tensor(const Tensor& tensor) {
  std::uint64_t hash = hash_value(static_cast<std::uint8_t>(tensor.dtype), kHashStart);
  for (std::int64_t size : tensor.sizes) hash = hash_value(size, hash);
  const std::vector<std::byte> bytes = dense_bytes(tensor);
  return hash_bytes(bytes.data(), bytes.size(), hash);
}

std::vector<std::uint64_t> hash_slices(const Tensor& tensor, std::size_t dim) {
  const std::vector<std::byte> bytes = dense_bytes(tensor);
  std::size_t inner = tensor.element_bytes(), outer = 1;
  for (std::size_t d = 0; d < tensor.rank(); ++d)
    (d < dim ? outer : inner) *= d == dim ? 1 : static_cast<std::size_t>(tensor.sizes[d]);
  const auto count = static_cast<std::size_t>(tensor.sizes[dim]);
  std::vector<std::uint64_t> hashes(count, kHashStart);
  for (std::size_t o = 0; o < outer; ++o)
    for (std::size_t i = 0; i < count; ++i)
      hashes[i] = hash_bytes(bytes.data() + (o * count + i) * inner, inner, hashes[i]);
  return hashes;
}

std::optional<double> find_norm(const Tensor& tensor) {
  const auto numbers = numbers_of(tensor.dtype);
  if (!numbers) return std::nullopt;
  const std::vector<std::byte> bytes = dense_bytes(tensor);
  double sum = 0;
  for (std::size_t at = 0; at < bytes.size(); at += numbers->bytes) {
    const double value = load_number(bytes.data() + at, numbers->dtype);
    sum += value * value;
  }
  return std::sqrt(sum);
}

bool has_only_finite(const Tensor& tensor) {
  const auto norm = find_norm(tensor);
  return norm.has_value() && std::isfinite(*norm);
}

TensorDifference compare_tensors(const Tensor& a, const Tensor& b) {
  TensorDifference difference;
  if (a.dtype != b.dtype) {
    difference.problem = fmt::format("dtypes {} and {}", info(a.dtype).short_name, info(b.dtype).short_name);
    return difference;
  }
  if (a.sizes != b.sizes) {
    difference.problem =
        fmt::format("sizes [{}] and [{}]", fmt::join(a.sizes, ", "), fmt::join(b.sizes, ", "));
    return difference;
  }
  const std::vector<std::byte> bytes_a = dense_bytes(a), bytes_b = dense_bytes(b);
  const auto numbers = numbers_of(a.dtype);
  const std::size_t width = a.element_bytes();
  double error = 0, magnitude = 0;
  for (std::size_t at = 0; at < bytes_a.size(); at += width) {
    const bool differs = std::memcmp(bytes_a.data() + at, bytes_b.data() + at, width) != 0;
    if (differs && difference.differing++ == 0) {
      difference.index = static_cast<std::int64_t>(at / width);
      const std::uint64_t bits_a = read_bits(bytes_a.data() + at, width),
                          bits_b = read_bits(bytes_b.data() + at, width);
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
      magnitude += value * value;
      if (differs) error += (value - other) * (value - other);
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
