// Typed 32-bit ids and the dense tables they index.
//
// An id is a position in one table. Tables only grow, so an id stays valid for the
// life of its table; a default-constructed id is "none" and indexes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace epweave {

template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(std::uint32_t index) : index_(index) {}
  constexpr explicit Id(std::size_t index) : index_(static_cast<std::uint32_t>(index)) {}

  constexpr std::uint32_t index() const { return index_; }
  constexpr bool valid() const { return index_ != kNone; }
  constexpr explicit operator bool() const { return valid(); }

  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t index_ = kNone;
};

// A growing table that allocates its ids.
template <class IdType, class T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t size, const T& value = T()) : items_(size, value) {}

  IdType push_back(T item) {
    items_.push_back(std::move(item));
    return IdType(items_.size() - 1);
  }
  void resize(std::size_t size, const T& value = T()) { items_.resize(size, value); }
  void reserve(std::size_t size) { items_.reserve(size); }

  decltype(auto) operator[](IdType id) {
    EPWEAVE_DCHECK(id.index() < items_.size());
    return items_[id.index()];
  }
  decltype(auto) operator[](IdType id) const {
    EPWEAVE_DCHECK(id.index() < items_.size());
    return items_[id.index()];
  }
  std::size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  bool contains(IdType id) const { return id.valid() && id.index() < items_.size(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<T> items_;
};

// A side table: a value per id of another table, a default where none was set. Reading never grows
// it. A small value is read by value, so that `table.at(a) = table[b]` is right where `at` moves
// the values to more memory; a large one by reference, which holds until the next `at`.
template <class IdType, class T>
class SideTable {
 public:
  using Read = std::conditional_t<std::is_trivially_copyable_v<T> && sizeof(T) <= 64, T, const T&>;

  explicit SideTable(T fallback = T()) : fallback_(std::move(fallback)) {}
  SideTable(std::size_t size, T fallback) : items_(size, fallback), fallback_(std::move(fallback)) {}

  Read operator[](IdType id) const { return id.index() < items_.size() ? items_[id.index()] : fallback_; }
  T& at(IdType id) {
    EPWEAVE_DCHECK(id.valid());
    if (id.index() >= items_.size()) items_.resize(id.index() + 1, fallback_);
    return items_[id.index()];
  }
  std::size_t size() const { return items_.size(); }

 private:
  std::vector<T> items_;
  T fallback_;
};

// A dense set of ids.
template <class IdType>
class IdSet {
 public:
  IdSet() = default;
  explicit IdSet(std::size_t size) : bits_(size) {}

  bool contains(IdType id) const { return id.index() < bits_.size() && bits_[id.index()] != 0; }
  // Returns whether the id was new.
  bool insert(IdType id) {
    if (id.index() >= bits_.size()) bits_.resize(id.index() + 1);
    return std::exchange(bits_[id.index()], std::uint8_t{1}) == 0;
  }
  void erase(IdType id) {
    if (id.index() < bits_.size()) bits_[id.index()] = 0;
  }

 private:
  std::vector<std::uint8_t> bits_;
};

}  // namespace epweave

template <class Tag>
struct std::hash<epweave::Id<Tag>> {
  std::size_t operator()(epweave::Id<Tag> id) const noexcept {
    return std::hash<std::uint32_t>()(id.index());
  }
};
