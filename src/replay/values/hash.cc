#include "replay/values/hash.h"

#include <algorithm>
#include <cstring>

#include "replay/values/row_major.h"

namespace epweave::replay {
namespace {

using math::kBlockBytes;
using math::kBlockChains;
using math::kWordBytes;

constexpr auto kChains = static_cast<std::size_t>(kBlockChains);
constexpr auto kBytes = static_cast<std::size_t>(kWordBytes);

std::uint64_t read_word(const std::byte* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}
// The first `bytes` of a word, zeros behind.
std::uint64_t read_word(const std::byte* from, std::size_t bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

// The sum of the chains of a block of at most kBlockBytes, the first of which has this number.
std::uint64_t sum_block(const std::byte* bytes, std::size_t size, std::int64_t number) {
  constexpr std::size_t kAtOnce = 8;  // chains in registers
  constexpr std::size_t kLine = kChains * kBytes;
  const std::size_t lines = size / kLine;
  const std::byte* rest = bytes + lines * kLine;
  const std::size_t left = size - lines * kLine, words = (left + kBytes - 1) / kBytes;
  std::uint64_t sum = 0;
  for (std::size_t first = 0; first < kChains; first += kAtOnce) {
    if (lines == 0 && first >= words) break;
    std::uint64_t chains[kAtOnce];
    for (std::size_t c = 0; c < kAtOnce; ++c)
      chains[c] = math::start_chain(number + static_cast<std::int64_t>(first + c));
    for (std::size_t line = 0; line < lines; ++line)
      for (std::size_t c = 0; c < kAtOnce; ++c)
        chains[c] = math::mix_hash(chains[c], read_word(bytes + line * kLine + (first + c) * kBytes));
    const std::size_t longer = words > first ? std::min(words - first, kAtOnce) : 0;
    for (std::size_t c = 0; c < longer; ++c) {
      const std::size_t at = (first + c) * kBytes;
      chains[c] = math::mix_hash(chains[c], read_word(rest + at, std::min(kBytes, left - at)));
    }
    const std::size_t made = lines == 0 ? longer : kAtOnce;
    for (std::size_t c = 0; c < made; ++c) sum += math::finish_chain(chains[c]);
  }
  return sum;
}

bool has_nan(const std::byte* bytes, std::size_t size, const math::FloatsInWord& floats) {
  std::uint64_t found = 0;
  std::size_t at = 0;
  for (; at + kBytes <= size; at += kBytes) found |= floats.above(read_word(bytes + at), floats.infinity);
  if (at < size) found |= floats.above(read_word(bytes + at, size - at), floats.infinity);
  return found != 0;
}

// Sums of rows of one tensor.
class ChainSums {
 public:
  explicit ChainSums(DType dtype) : floats_(floats_of(dtype)) {}

  // `number`: of the row's first chain.
  std::uint64_t sum(const std::byte* row, std::size_t size, std::int64_t number) const {
    if (size == 0) return 0;
    if (size <= kBytes) return sum_word(size == kBytes ? read_word(row) : read_word(row, size), number);
    std::uint64_t sum = 0;
    constexpr auto kMost = static_cast<std::size_t>(kBlockBytes);
    for (; size != 0; number += kBlockChains) {
      const std::size_t taken = std::min(size, kMost);
      sum += sum_of_block(row, taken, number);
      row += taken;
      size -= taken;
    }
    return sum;
  }

  // Rows of one number each, one behind the other: the sum of each is added to sums.
  template <class Row>
  void add_short(const std::byte* rows, std::int64_t number, std::vector<std::uint64_t>& sums) const {
    for (std::uint64_t& sum : sums) {
      Row row;
      std::memcpy(&row, rows, sizeof row);
      sum += sum_word(row, number);
      rows += sizeof row;
    }
  }
  void add(const std::byte* rows, std::size_t size, std::int64_t number,
           std::vector<std::uint64_t>& sums) const {
    switch (size) {
      case 1:
        return add_short<std::uint8_t>(rows, number, sums);
      case 2:
        return add_short<std::uint16_t>(rows, number, sums);
      case 4:
        return add_short<std::uint32_t>(rows, number, sums);
      case 8:
        return add_short<std::uint64_t>(rows, number, sums);
      default:
        for (std::uint64_t& sum_of_row : sums) {
          sum_of_row += sum(rows, size, number);
          rows += size;
        }
    }
  }

 private:
  std::uint64_t sum_word(std::uint64_t word, std::int64_t number) const {
    if (floats_.has_nan(word)) word = floats_.unify(word);
    return math::finish_chain(math::mix_hash(math::start_chain(number), word));
  }
  // Every value is looked at: while its block is in the cache.
  std::uint64_t sum_of_block(const std::byte* bytes, std::size_t size, std::int64_t number) const {
    if (floats_.signs == 0 || !has_nan(bytes, size, floats_)) return sum_block(bytes, size, number);
    std::byte unified[static_cast<std::size_t>(kBlockBytes)];
    for (std::size_t at = 0; at < size; at += kBytes) {
      const std::size_t taken = std::min(kBytes, size - at);
      const std::uint64_t word = floats_.unify(read_word(bytes + at, taken));
      std::memcpy(unified + at, &word, taken);
    }
    return sum_block(unified, size, number);
  }

  math::FloatsInWord floats_;
};

std::uint64_t mix_number(std::uint64_t hash, std::int64_t number) {
  return math::mix_hash(hash, static_cast<std::uint64_t>(number));
}

template <class Bits>
math::FloatsInWord floats_like(Bits infinity, Bits nan) {
  constexpr std::uint64_t kEach = ~std::uint64_t{0} / static_cast<Bits>(~Bits{0});  // 1 in each float
  return {kEach << (8 * sizeof(Bits) - 1), infinity, nan, 8 * sizeof(Bits)};
}

}  // namespace

math::FloatsInWord floats_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return floats_like<std::uint16_t>(0x7c00, 0x7e00);
    case DType::kBfloat16:
      return floats_like<std::uint16_t>(0x7f80, 0x7fc0);
    case DType::kFloat32:
    case DType::kComplex64:
      return floats_like<std::uint32_t>(0x7f800000, 0x7fc00000);
    case DType::kFloat64:
      return floats_like<std::uint64_t>(0x7ff0000000000000, 0x7ff8000000000000);
    default:
      return {};
  }
}

HashedRows rows_of(DType dtype, const Extents& sizes) {
  return {1, 1, count_elements(sizes) * static_cast<std::int64_t>(info(dtype).bytes)};
}

HashedRows rows_of_slices(DType dtype, const Extents& sizes, std::size_t dim) {
  HashedRows rows{1, sizes[dim], static_cast<std::int64_t>(info(dtype).bytes)};
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (d != dim) (d < dim ? rows.outer : rows.inner) *= sizes[d];
  return rows;
}

std::uint64_t finish_hash(DType dtype, const Extents& sizes, std::uint64_t sum) {
  std::uint64_t hash = math::mix_hash(math::kHashStart, static_cast<std::uint64_t>(dtype));
  for (std::int64_t size : sizes) hash = mix_number(hash, size);
  return math::finish_chain(math::mix_hash(hash, sum));
}

std::uint64_t finish_slice(const HashedRows& rows, std::uint64_t sum) {
  return math::finish_chain(
      math::mix_hash(mix_number(mix_number(math::kHashStart, rows.outer), rows.inner), sum));
}

std::uint64_t hash_tensor(const Tensor& tensor) {
  const RowMajor bytes(tensor);
  return finish_hash(tensor.dtype, tensor.sizes, ChainSums(tensor.dtype).sum(bytes.data(), bytes.size(), 0));
}

std::vector<std::uint64_t> hash_slices(const Tensor& tensor, std::size_t dim) {
  const RowMajor bytes(tensor);
  const ChainSums sums(tensor.dtype);
  const HashedRows rows = rows_of_slices(tensor.dtype, tensor.sizes, dim);
  const auto inner = static_cast<std::size_t>(rows.inner);
  const std::int64_t chains = math::count_chains(rows.inner);
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(rows.count), 0);
  for (std::int64_t o = 0; o < rows.outer; ++o)
    sums.add(bytes.data() + static_cast<std::size_t>(o * rows.count) * inner, inner, o * chains, hashes);
  for (std::uint64_t& hash : hashes) hash = finish_slice(rows, hash);
  return hashes;
}

}  // namespace epweave::replay
