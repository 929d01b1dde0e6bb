// The hash of a tensor's bytes, in pieces that any number of threads can make: one definition for
// the CPU and for devices (values/hash.h says what is hashed). C++17 inside.
//
// A row of bytes is words of 8 bytes, little-endian, zeros behind its end. Of each block of 512
// words, word w belongs to chain w % 32: a block is 32 chains of up to 16 words. A chain's hash
// depends on its number and on its words in order; the row's hash is the sum of those of its
// chains, so it does not matter who makes which, or when.
#pragma once

#include "replay/kernels/math/portable_math.h"

namespace epweave::math {

inline constexpr std::uint64_t kHashStart = 0xcbf29ce484222325, kHashPrime = 0x9e3779b97f4a7c15,
                               kHashStep = 0xbf58476d1ce4e5b9;
inline constexpr std::int64_t kWordBytes = 8, kBlockChains = 32, kChainWords = 16;
inline constexpr std::int64_t kBlockWords = kBlockChains * kChainWords,
                              kBlockBytes = kBlockWords * kWordBytes;

// A round as xxHash64's. The rotation brings what differs in the highest bits, such as signs, to
// where the multiplication spreads it: no later word of the chain cancels it.
EPWEAVE_HD std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t word) {
  hash += word * kHashStep;
  return (hash << 31 | hash >> 33) * kHashPrime;
}

// A chain: start_chain() of its number, mix_hash() of each word, finish_chain().
EPWEAVE_HD std::uint64_t start_chain(std::int64_t number) {
  return kHashStart + static_cast<std::uint64_t>(number) * kHashStep;
}
// Every bit changes about half of the bits, so that chains may be added up.
EPWEAVE_HD std::uint64_t finish_chain(std::uint64_t hash) {
  hash = (hash ^ hash >> 32) * kHashStep;
  hash = (hash ^ hash >> 29) * kHashPrime;
  return hash ^ hash >> 32;
}

EPWEAVE_HD std::int64_t count_words(std::int64_t bytes) {
  return (bytes + kWordBytes - 1) / kWordBytes;
}
// Chains of a row of so many bytes.
EPWEAVE_HD std::int64_t count_chains(std::int64_t bytes) {
  const std::int64_t words = count_words(bytes), last = words % kBlockWords;
  return words / kBlockWords * kBlockChains + (last < kBlockChains ? last : kBlockChains);
}
EPWEAVE_HD std::int64_t first_word_of(std::int64_t chain) {
  return chain / kBlockChains * kBlockWords + chain % kBlockChains;
}

// The floats of a dtype, as they lie in a word.
struct FloatsInWord {
  std::uint64_t signs = 0;              // 1 in each sign bit; 0: no floats
  std::uint64_t infinity = 0, nan = 0;  // of one float: infinity, and the NaN that stands for all
  int bits = 64;                        // of one float

  // What is above `bound`, of the floats without their signs: their sign bits. Added to what the
  // bound lacks of all ones, such a float carries into its sign's bit.
  EPWEAVE_HD std::uint64_t above(std::uint64_t word, std::uint64_t bound) const {
    return ((word & ~signs) + (signs - ones() * (bound + 1))) & signs;
  }
  EPWEAVE_HD bool has_nan(std::uint64_t word) const { return above(word, infinity) != 0; }
  EPWEAVE_HD bool has_not_finite(std::uint64_t word) const { return above(word, infinity - 1) != 0; }
  // Every NaN becomes the one that stands for all.
  EPWEAVE_HD std::uint64_t unify(std::uint64_t word) const {
    const std::uint64_t found = above(word, infinity);
    for (int at = 0; at < 64; at += bits) {
      const std::uint64_t mask = (~std::uint64_t{0} >> (64 - bits)) << at;
      if ((found & mask) != 0) word = (word & ~mask) | nan << at;
    }
    return word;
  }

 private:
  EPWEAVE_HD std::uint64_t ones() const { return signs >> (bits - 1); }  // 1 in each float
};

}  // namespace epweave::math
