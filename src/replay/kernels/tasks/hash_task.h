// Hashes of a tensor's rows of bytes (values/hash.h): the sums of their chains. C++17.
#pragma once

#include "replay/kernels/math/hash.h"
#include "replay/kernels/tasks/tasks.h"

namespace epweave::replay::tasks {

// What is added to a sum; indices of a task may meet here: the sum has no order.
EPWEAVE_HD void add_to_sum(std::uint64_t* sum, std::uint64_t value) {
#ifdef __CUDA_ARCH__
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), value);
#else
  *sum += value;
#endif
}
EPWEAVE_HD void set_bits(std::uint64_t* word, std::uint64_t bits) {
#ifdef __CUDA_ARCH__
  atomicOr(reinterpret_cast<unsigned long long*>(word), bits);
#else
  *word |= bits;
#endif
}

// Found in the elements.
inline constexpr std::uint64_t kFoundNan = 1, kFoundNotFinite = 2;

// sums[i] += the chains of the rows with index i, of [outer, count] rows of `inner` bytes each;
// `found`, if not null, gets bits of what was found in them.
//
// A block of threads does some rows of a few neighbouring i, or a part of the chains of one row:
// 2^thread_bits threads take the chains of a row in turn.
struct HashTask {
  static constexpr int kThreads = 256, kBlocks = 4;
  static constexpr std::size_t kHeld = kThreads;

  Shape shape;   // of the elements, where they are not dense
  Strided from;  // elements of at most 8 bytes; dense: in row-major order without gaps
  bool is_dense;
  int bytes;  // of an element
  int thread_bits;
  std::int64_t outer, count, inner;
  std::int64_t rows_each, chains_each;  // of a block: rows of an i, and chains a thread takes of each
  math::FloatsInWord floats;
  std::uint64_t* sums;
  std::uint64_t* found;

  struct Shared {
    std::uint64_t sums[kHeld];
  };

  std::int64_t blocks() const { return tiles() * row_parts() * chain_parts(); }
  EPWEAVE_HD std::int64_t steps() const { return thread_bits + 2; }
  EPWEAVE_HD void step(std::int64_t number, std::int64_t block, int thread, Shared& shared) const {
    const int threads = 1 << thread_bits, t = thread & (threads - 1);
    if (number == 0) {
      const std::int64_t i = index_of(block, thread);
      shared.sums[thread] = i < count ? sum_of_thread(block / tiles(), i, t) : 0;
    } else if (number <= thread_bits) {
      const int half = threads >> number;
      if (t < half) shared.sums[thread] += shared.sums[thread + half];
    } else if (t == 0) {
      const std::int64_t i = index_of(block, thread);
      if (i < count) add_to_sum(sums + i, shared.sums[thread]);
    }
  }

 private:
  static constexpr int kAhead = 8;  // words that a thread reads before it uses the first
  static constexpr std::size_t kWordsAhead = kAhead;

  EPWEAVE_HD static std::int64_t parts_of(std::int64_t all, std::int64_t each) {
    return (all + each - 1) / each;
  }
  EPWEAVE_HD std::int64_t index_of(std::int64_t block, int thread) const {
    return block % tiles() * (kThreads >> thread_bits) + (thread >> thread_bits);
  }
  EPWEAVE_HD std::int64_t tiles() const { return parts_of(count, kThreads >> thread_bits); }
  EPWEAVE_HD std::int64_t row_parts() const { return parts_of(outer, rows_each); }
  EPWEAVE_HD std::int64_t chain_parts() const {
    return parts_of(math::count_chains(inner), chains_each << thread_bits);
  }

  EPWEAVE_HD std::uint64_t sum_of_thread(std::int64_t part, std::int64_t i, int t) const {
    const std::int64_t chains = math::count_chains(inner), parts = chain_parts();
    const std::int64_t first_row = part / parts * rows_each,
                       first_chain = (part % parts * chains_each << thread_bits) + t;
    std::uint64_t sum = 0, seen = 0;
    for (std::int64_t o = first_row; o < outer && o < first_row + rows_each; ++o)
      for (std::int64_t k = 0; k < chains_each; ++k) {
        const std::int64_t chain = first_chain + (k << thread_bits);
        if (chain < chains) sum += hash_chain(o * count + i, chain, o * chains + chain, seen);
      }
    if (found != nullptr && seen != 0) set_bits(found, seen);
    return sum;
  }

  EPWEAVE_HD std::uint64_t hash_chain(std::int64_t row, std::int64_t chain, std::int64_t number,
                                      std::uint64_t& seen) const {
    const std::int64_t first = math::first_word_of(chain), words = inner / math::kWordBytes;
    const std::int64_t last = first + (math::kChainWords - 1) * math::kBlockChains;
    const auto* data = static_cast<const unsigned char*>(from.data) + row * inner;
    const bool is_aligned = is_dense && reinterpret_cast<std::uintptr_t>(data) % math::kWordBytes == 0;
    std::uint64_t hash = math::start_chain(number);
    if (is_aligned && last < words) {
      const auto* at = reinterpret_cast<const std::uint64_t*>(data) + first;
      EPWEAVE_NO_UNROLL
      for (std::int64_t w = 0; w < math::kChainWords; w += kAhead) {
        std::uint64_t ahead[kWordsAhead];
        EPWEAVE_UNROLL
        for (int k = 0; k < kAhead; ++k) ahead[k] = at[(w + k) * math::kBlockChains];
        EPWEAVE_UNROLL
        for (int k = 0; k < kAhead; ++k) hash = math::mix_hash(hash, looked_at(ahead[k], seen));
      }
      return math::finish_chain(hash);
    }
    EPWEAVE_NO_UNROLL
    for (std::int64_t w = first; w <= last && w * math::kWordBytes < inner; w += math::kBlockChains) {
      const std::uint64_t word = is_aligned && w < words ? reinterpret_cast<const std::uint64_t*>(data)[w]
                                                         : gather_word(row, w * math::kWordBytes);
      hash = math::mix_hash(hash, looked_at(word, seen));
    }
    return math::finish_chain(hash);
  }

  EPWEAVE_HD std::uint64_t looked_at(std::uint64_t word, std::uint64_t& seen) const {
    if (!floats.has_not_finite(word)) return word;
    seen |= kFoundNotFinite;
    if (!floats.has_nan(word)) return word;
    seen |= kFoundNan;
    return floats.unify(word);
  }

  // Element by element; `at`: the word's first byte in the row.
  EPWEAVE_HD std::uint64_t gather_word(std::int64_t row, std::int64_t at) const {
    const std::int64_t left = (inner - at < math::kWordBytes ? inner - at : math::kWordBytes) / bytes;
    const std::int64_t first = (row * inner + at) / bytes;
    std::uint64_t word = 0;
    for (std::int64_t k = 0; k < left; ++k) {
      const std::int64_t where = is_dense ? first + k : offset_of(shape, from.strides, first + k);
      word |= load_bits(where) << (8 * bytes * k);
    }
    return word;
  }
  EPWEAVE_HD std::uint64_t load_bits(std::int64_t at) const {
    switch (bytes) {
      case 1:
        return math::read_stored<std::uint8_t>(from.data, at);
      case 2:
        return math::read_stored<std::uint16_t>(from.data, at);
      case 4:
        return math::read_stored<std::uint32_t>(from.data, at);
      default:
        return math::read_stored<std::uint64_t>(from.data, at);
    }
  }
};

}  // namespace epweave::replay::tasks
