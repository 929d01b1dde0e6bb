// Strings stored once, named by ids. Ids are handed out in order of first use.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/arena.h"
#include "base/hash_index.h"
#include "base/id.h"

namespace epweave {

using StringId = Id<struct StringTag>;

class StringTable {
 public:
  StringId intern(std::string_view text);
  // Of many: memory is asked for ahead, where each alone would wait for it.
  std::vector<StringId> intern(std::span<const std::string_view> texts);
  // The id of `text` if it was interned before, else none.
  StringId find(std::string_view text) const;
  // Stays valid for the life of the table.
  std::string_view operator[](StringId id) const { return strings_[id.index()]; }
  // As above, "" for none.
  std::string_view text_or_empty(StringId id) const { return id ? (*this)[id] : std::string_view(); }
  std::size_t size() const { return strings_.size(); }

 private:
  StringId intern(std::string_view text, std::size_t hash);
  std::uint32_t find(std::string_view text, std::size_t hash) const;

  Arena characters_;
  std::vector<std::string_view> strings_;  // into the arena
  HashIndex ids_;
};

}  // namespace epweave
