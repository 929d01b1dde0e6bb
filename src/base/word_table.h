// Sequences of words, each stored once and numbered in order of first use: what structured keys are
// made of.
//
//   WordTable keys;
//   keys.push(3), keys.push(5);
//   const auto [number, is_new] = keys.intern();      // 0, true; of the words pushed since the last call
//   keys.push(3), keys.push(5);
//   keys.intern();                                    // 0, false
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/hash_index.h"

namespace epweave {

class WordTable {
 public:
  struct Key {
    std::uint32_t number;
    bool is_new;
  };

  void push(std::uint64_t word) { words_.push_back(word); }
  // Forgets what was pushed since the last key.
  void discard() { words_.resize(ends_.back()); }
  Key intern() {
    const std::size_t begin = ends_.back();
    std::size_t hash = 0;
    for (std::size_t i = begin; i < words_.size(); ++i) hash = mix_hash(hash, words_[i]);
    const std::uint32_t known = index_.find(hash, [&](std::uint32_t number) { return is_last(number); });
    if (known != HashIndex::kNone) {
      discard();
      return {known, false};
    }
    const auto number = static_cast<std::uint32_t>(ends_.size() - 1);
    index_.insert(hash, number);
    ends_.push_back(words_.size());
    return {number, true};
  }

 private:
  // Whether the key is what was pushed last.
  bool is_last(std::uint32_t number) const {
    const auto at = [&](std::size_t i) { return words_.begin() + static_cast<std::ptrdiff_t>(i); };
    return std::equal(at(ends_[number]), at(ends_[number + 1]), at(ends_.back()), words_.end());
  }

  std::vector<std::uint64_t> words_;
  std::vector<std::size_t> ends_{0};  // where the first key begins, and where each ends
  HashIndex index_;
};

}  // namespace epweave
