#include "base/interner.h"

#include <functional>

namespace epweave {

StringId StringTable::intern(std::string_view text) {
  const std::size_t hash = std::hash<std::string_view>()(text);
  if (const std::uint32_t known = find(text, hash); known != HashIndex::kNone) return StringId(known);
  const StringId id(strings_.size());
  const std::span<const char> stored = characters_.store(std::span<const char>(text));
  strings_.emplace_back(stored.data(), stored.size());
  ids_.insert(hash, id.index());
  return id;
}

StringId StringTable::find(std::string_view text) const {
  return StringId(find(text, std::hash<std::string_view>()(text)));
}

std::uint32_t StringTable::find(std::string_view text, std::size_t hash) const {
  return ids_.find(hash, [&](std::uint32_t id) { return strings_[id] == text; });
}

}  // namespace epweave
