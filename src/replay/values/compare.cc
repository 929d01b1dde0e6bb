#include "replay/values/compare.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "replay/values/block_cache.h"
#include "replay/values/evaluate.h"
#include "replay/values/floats.h"

namespace epweave::replay {
namespace {

constexpr std::uint64_t kHashStart = 0xcbf29ce484222325;
constexpr std::uint64_t kHashPrime = 0x9e3779b97f4a7c15;
constexpr std::size_t kWord = sizeof(std::uint64_t);
constexpr std::size_t kHashLanes = 4;

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * kHashPrime;
  return hash ^ hash >> 32;
}

// The first `bytes` of a little-endian word, zeros behind.
std::uint64_t read_word(const std::byte* from, std::size_t bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

// Whole blocks of four words go to four lanes side by side, which are mixed in at the end.
std::uint64_t hash_bytes(const std::byte* bytes, std::size_t count, std::uint64_t hash) {
  hash = mix(hash, count);
  if (count >= kHashLanes * kWord) {
    std::uint64_t lanes[kHashLanes];
    for (std::size_t l = 0; l < kHashLanes; ++l) lanes[l] = hash + l;
    for (; count >= kHashLanes * kWord; bytes += kHashLanes * kWord, count -= kHashLanes * kWord)
      for (std::size_t l = 0; l < kHashLanes; ++l)
        lanes[l] = mix(lanes[l], read_word(bytes + l * kWord, kWord));
    for (const std::uint64_t lane : lanes) hash = mix(hash, lane);
  }
  for (; count >= kWord; bytes += kWord, count -= kWord) hash = mix(hash, read_word(bytes, kWord));
  return count == 0 ? hash : mix(hash, read_word(bytes, count));
}

// Whether bits of a float are a NaN, and the one NaN that stands for all of them. Devices make NaNs
// of different bits.
template <class Bits>
struct FloatBits {
  Bits infinity;  // without its sign
  Bits nan;
  bool is_nan(Bits bits) const { return (bits & static_cast<Bits>(~Bits{0} >> 1)) > infinity; }
};
constexpr FloatBits<std::uint16_t> kFloat16{0x7c00, 0x7e00}, kBfloat16{0x7f80, 0x7fc0};
constexpr FloatBits<std::uint32_t> kFloat32{0x7f800000, 0x7fc00000};
constexpr FloatBits<std::uint64_t> kFloat64{0x7ff0000000000000, 0x7ff8000000000000};

// Calls visit(FloatBits) for dtypes of floats, and complex ones, whose parts are floats.
template <class Visit>
void with_float_bits(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kFloat16:
      return visit(kFloat16);
    case DType::kBfloat16:
      return visit(kBfloat16);
    case DType::kFloat32:
    case DType::kComplex64:
      return visit(kFloat32);
    case DType::kFloat64:
      return visit(kFloat64);
    default:
      return;
  }
}

// Every value is looked at, so a word of several floats at a time: without its sign, a float that
// is more than infinity carries into the sign's bit where what infinity lacks of all ones is added.
template <class Bits>
bool has_nan(const FloatBits<Bits>& format, const std::byte* data, std::size_t size) {
  constexpr std::uint64_t kEach = ~std::uint64_t{0} / static_cast<Bits>(~Bits{0});  // 1 in each float
  constexpr std::uint64_t kSign = kEach << (8 * sizeof(Bits) - 1);
  const std::uint64_t lacks = kSign - kEach - kEach * format.infinity;
  std::uint64_t found = 0;
  std::size_t at = 0;
  for (; at + kWord <= size; at += kWord) found |= (read_word(data + at, kWord) & ~kSign) + lacks;
  if (at < size) found |= (read_word(data + at, size - at) & ~kSign) + lacks;
  return (found & kSign) != 0;
}

// A tensor's elements in row-major order: where they lie, or a copy.
class RowMajor {
 public:
  explicit RowMajor(const Tensor& tensor)
      : size_(static_cast<std::size_t>(tensor.numel()) * tensor.element_bytes()) {
    if (tensor.is_contiguous()) {
      data_ = tensor.bytes();
      return;
    }
    copy_.resize(size_);
    gather_elements(tensor, copy_.data());
    data_ = copy_.data();
  }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

  // Every NaN becomes the one that stands for all.
  void unify_nans(DType dtype) {
    with_float_bits(dtype, [this](const auto& format) { unify(format); });
  }

 private:
  template <class Bits>
  void unify(const FloatBits<Bits>& format) {
    if (!has_nan(format, data_, size_)) return;
    if (copy_.empty()) copy_.assign(data_, data_ + size_);
    for (std::size_t at = 0; at < size_; at += sizeof(Bits)) {
      Bits bits;
      std::memcpy(&bits, copy_.data() + at, sizeof bits);
      if (format.is_nan(bits)) std::memcpy(copy_.data() + at, &format.nan, sizeof bits);
    }
    data_ = copy_.data();
  }

  Buffer<std::byte> copy_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

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

// Whether visit(number) says to go on for each number, in order.
template <class Visit>
bool visit_numbers(const RowMajor& bytes, DType dtype, const Visit& visit) {
  const auto visit_as = [&](auto element, const auto& to_double) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof element) {
      std::memcpy(&element, bytes.data() + at, sizeof element);
      if (!visit(to_double(element))) return false;
    }
    return true;
  };
  switch (dtype) {
    case DType::kFloat32:
      return visit_as(float{}, [](float x) { return static_cast<double>(x); });
    case DType::kBfloat16:
      return visit_as(std::uint16_t{},
                      [](std::uint16_t x) { return static_cast<double>(bfloat16_to_float(x)); });
    default:
      for (std::size_t at = 0; at < bytes.size(); at += info(dtype).bytes)
        if (!visit(load_number(bytes.data() + at, dtype))) return false;
      return true;
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

template <class Predicate>
bool has_number(const Tensor& tensor, const Predicate& is_sought) {
  const auto numbers = numbers_of(tensor.dtype);
  if (!numbers) return false;
  const RowMajor bytes(tensor);
  return !visit_numbers(bytes, numbers->dtype, [&](double value) { return !is_sought(value); });
}

}  // namespace

std::uint64_t hash_tensor(const Tensor& tensor) {
  std::uint64_t hash = mix(kHashStart, static_cast<std::uint64_t>(tensor.dtype));
  for (std::int64_t size : tensor.sizes) hash = mix(hash, static_cast<std::uint64_t>(size));
  RowMajor bytes(tensor);
  bytes.unify_nans(tensor.dtype);
  return hash_bytes(bytes.data(), bytes.size(), hash);
}

std::vector<std::uint64_t> hash_slices(const Tensor& tensor, std::size_t dim) {
  RowMajor bytes(tensor);
  bytes.unify_nans(tensor.dtype);
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
  const RowMajor bytes(tensor);
  double sum = 0;
  visit_numbers(bytes, numbers->dtype, [&](double value) {
    sum += value * value;
    return true;
  });
  return std::sqrt(sum);
}

bool has_only_finite(const Tensor& tensor) {
  return numbers_of(tensor.dtype).has_value() && !has_not_finite(tensor);
}

bool has_not_finite(const Tensor& tensor) {
  return has_number(tensor, [](double value) { return !std::isfinite(value); });
}

bool has_nan(const Tensor& tensor) {
  return has_number(tensor, [](double value) { return std::isnan(value); });
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
  RowMajor bytes_a(a), bytes_b(b);
  if (bytes_a.size() == 0 || std::memcmp(bytes_a.data(), bytes_b.data(), bytes_a.size()) == 0)
    return difference;
  bytes_a.unify_nans(a.dtype);
  bytes_b.unify_nans(b.dtype);
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
