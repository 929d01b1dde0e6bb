// A side table (base/id.h) in which few ids have a value: 4 bytes for each id, and the values side
// by side, in the order in which they were made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/id.h"

namespace epweave {

template <class IdType, class T>
class FewTable {
 public:
  // Null: it has none. Holds until the next `at` of an id without a value.
  const T* find(IdType id) const {
    const std::uint32_t number = numbers_[id];
    return number == 0 ? nullptr : &values_[number - 1].second;
  }
  // A default one is made where it has none.
  T& at(IdType id) {
    std::uint32_t& number = numbers_.at(id);
    if (number == 0) {
      values_.emplace_back(id, T());
      number = static_cast<std::uint32_t>(values_.size());
    }
    return values_[number - 1].second;
  }

  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  SideTable<IdType, std::uint32_t> numbers_{0};  // from 1
  std::vector<std::pair<IdType, T>> values_;
};

}  // namespace epweave
