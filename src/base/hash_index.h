// Finds values of a dense table by their hash: what an interner needs beside the table itself.
//
// The caller owns the values and their ids, says how a value is hashed, and compares on lookup;
// values are never removed. One flat array, linear probing: a lookup that finds nothing touches one
// cache line.
//
//   HashIndex index;
//   auto same = [&](std::uint32_t id) { return table[id] == value; };
//   std::uint32_t id = index.find(hash(value), same);
//   if (id == HashIndex::kNone) table.push_back(value), index.insert(hash(value), id = table.size() - 1);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/prefetch.h"

namespace epweave {

// Mixes `value` into `seed`.
constexpr std::size_t mix_hash(std::size_t seed, std::size_t value) {
  std::size_t h = (seed ^ value) * 0x9e3779b97f4a7c15ULL;
  return h ^ (h >> 32);
}

// Of a text, eight bytes at a time.
inline std::size_t hash_of(std::string_view text) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::size_t hash = text.size();
  const auto add_word = [&](const char* bytes) {
    std::uint64_t word;
    std::memcpy(&word, bytes, kWord);
    hash = mix_hash(hash, word);
  };
  if (text.size() < kWord) {
    std::uint64_t word = 0;
    for (char c : text) word = word << 8 | static_cast<unsigned char>(c);
    return mix_hash(hash, word);
  }
  for (std::size_t i = 0; i + kWord < text.size(); i += kWord) add_word(text.data() + i);
  add_word(text.data() + text.size() - kWord);  // the last eight, of which some may have been added before
  return hash;
}

class HashIndex {
 public:
  static constexpr std::uint32_t kNone = ~0U;

  // The id under `hash` for which same(id) holds, or kNone.
  template <class Same>  // bool(std::uint32_t)
  std::uint32_t find(std::size_t hash, const Same& same) const {
    if (slots_.empty()) return kNone;
    const std::uint32_t tag = tag_of(hash);
    for (std::size_t i = tag & mask();; i = (i + 1) & mask()) {
      const Slot& slot = slots_[i];
      if (slot.id == kNone || (slot.tag == tag && same(slot.id))) return slot.id;
    }
  }

  // Asks for the memory that `find` of this hash reads first.
  [[gnu::always_inline]] void prefetch(std::size_t hash) const {
    if (!slots_.empty()) epweave::prefetch(&slots_[tag_of(hash) & mask()]);
  }

  // Adds an id that is not there yet.
  void insert(std::size_t hash, std::uint32_t id) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    place({tag_of(hash), id});
    ++count_;
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t id = kNone;
  };

  static std::uint32_t tag_of(std::size_t hash) { return static_cast<std::uint32_t>(mix_hash(0, hash)); }
  std::size_t mask() const { return slots_.size() - 1; }

  void place(Slot slot) {
    std::size_t i = slot.tag & mask();
    while (slots_[i].id != kNone) i = (i + 1) & mask();
    slots_[i] = slot;
  }

  void grow() {
    std::vector<Slot> old = std::exchange(slots_, {});
    slots_.resize(old.empty() ? 16 : 2 * old.size());
    for (const Slot& slot : old)
      if (slot.id != kNone) place(slot);
  }

  std::vector<Slot> slots_;  // as many as a power of two, at most half of them taken
  std::size_t count_ = 0;
};

}  // namespace epweave
