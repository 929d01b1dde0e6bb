// A growing table that allocates its ids, as an IdVector does, in pages: it grows without moving
// what it has, and however large it is, it needs no large piece of memory.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/error.h"

namespace epweave {

template <class IdType, class T>
class PagedTable {
 public:
  IdType push_back(T item) {
    if (size_ % kPageItems == 0) add_page();
    pages_.back().push_back(std::move(item));
    return IdType(size_++);
  }

  const T& operator[](IdType id) const { return at(*this, id); }
  T& operator[](IdType id) { return at(*this, id); }
  std::size_t size() const { return size_; }
  bool contains(IdType id) const { return id.valid() && id.index() < size_; }

  auto begin() { return Iterator<PagedTable>{this, 0}; }
  auto end() { return Iterator<PagedTable>{this, size_}; }
  auto begin() const { return Iterator<const PagedTable>{this, 0}; }
  auto end() const { return Iterator<const PagedTable>{this, size_}; }

 private:
  static constexpr std::size_t kPageItems = 256;

  template <class Table>
  struct Iterator {
    Table* table;
    std::size_t place;
    auto& operator*() const { return (*table)[IdType(place)]; }
    Iterator& operator++() { return ++place, *this; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.place == b.place; }
  };

  template <class Table>
  static auto& at(Table& table, IdType id) {
    EPWEAVE_DCHECK(id.index() < table.size_);
    return table.pages_[id.index() / kPageItems][id.index() % kPageItems];
  }

  // The first page grows with what it has, so that a small table is small.
  void add_page() {
    pages_.emplace_back();
    if (pages_.size() > 1) pages_.back().reserve(kPageItems);
  }

  std::vector<std::vector<T>> pages_;  // each full but for the last
  std::size_t size_ = 0;
};

}  // namespace epweave
