#include "base/interner.h"

namespace epweave {

StringId StringTable::intern(std::string_view text) {
  if (auto found = ids_.find(text); found != ids_.end()) return found->second;
  strings_.emplace_back(text);
  StringId id(strings_.size() - 1);
  ids_.emplace(strings_.back(), id);
  return id;
}

StringId StringTable::find(std::string_view text) const {
  auto found = ids_.find(text);
  return found == ids_.end() ? StringId() : found->second;
}

}  // namespace epweave
