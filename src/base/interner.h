// Strings stored once, named by ids. Ids are handed out in order of first use.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/id.h"

namespace epweave {

using StringId = Id<struct StringTag>;

class StringTable {
 public:
  StringId intern(std::string_view text);
  // The id of `text` if it was interned before, else none.
  StringId find(std::string_view text) const;
  std::string_view operator[](StringId id) const { return strings_[id.index()]; }
  // As above, "" for none.
  std::string_view text_or_empty(StringId id) const { return id ? (*this)[id] : std::string_view(); }
  std::size_t size() const { return strings_.size(); }

 private:
  std::deque<std::string> strings_;  // a deque: views stay valid while it grows
  std::unordered_map<std::string_view, StringId> ids_;
};

}  // namespace epweave
