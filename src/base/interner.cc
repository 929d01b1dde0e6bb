#include "base/interner.h"

#include <algorithm>
#include <array>

namespace epweave {

StringId StringTable::intern(std::string_view text) {
  return intern(text, hash_of(text));
}

std::vector<StringId> StringTable::intern(std::span<const std::string_view> texts) {
  constexpr std::size_t kAtOnce = 16;
  std::array<std::size_t, kAtOnce> hashes{};
  std::vector<StringId> ids;
  ids.reserve(texts.size());
  for (; !texts.empty(); texts = texts.subspan(std::min(kAtOnce, texts.size()))) {
    const std::span<const std::string_view> some = texts.first(std::min(kAtOnce, texts.size()));
    for (std::size_t i = 0; i < some.size(); ++i) ids_.prefetch(hashes[i] = hash_of(some[i]));
    for (std::size_t i = 0; i < some.size(); ++i) ids.push_back(intern(some[i], hashes[i]));
  }
  return ids;
}

StringId StringTable::intern(std::string_view text, std::size_t hash) {
  if (const std::uint32_t known = find(text, hash); known != HashIndex::kNone) return StringId(known);
  const StringId id(strings_.size());
  const std::span<const char> stored = characters_.store(std::span<const char>(text));
  strings_.emplace_back(stored.data(), stored.size());
  ids_.insert(hash, id.index());
  return id;
}

StringId StringTable::find(std::string_view text) const {
  return StringId(find(text, hash_of(text)));
}

std::uint32_t StringTable::find(std::string_view text, std::size_t hash) const {
  return ids_.find(hash, [&](std::uint32_t id) { return strings_[id] == text; });
}

}  // namespace epweave
