// A growing table that allocates its ids, as an IdVector does, in pages: however large it is, it
// needs no large piece of memory.
//
// Copies share their pages. A page is copied when an item of it is first asked for to be changed,
// so that a copy costs what it changes. So a reference holds until the table is copied, grows, or
// is asked for an item to be changed: one for reading is then to the item as it was, and one for
// changing would change the copies, too. To read without copying, ask a const table.
//
// Threads may read copies at the same time. While one changes a copy, no other may let go of one.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"

namespace epweave {

template <class IdType, class T>
class PagedTable {
 public:
  PagedTable() = default;
  PagedTable(const PagedTable&) = default;
  PagedTable& operator=(const PagedTable&) = default;
  PagedTable(PagedTable&& other) noexcept
      : pages_(std::move(other.pages_)), size_(std::exchange(other.size_, 0)) {}
  PagedTable& operator=(PagedTable&& other) noexcept {
    pages_ = std::exchange(other.pages_, {});
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  IdType push_back(T item) {
    if (size_ == pages_.size() * kPageItems) add_page();
    Page& page = own_page(pages_.size() - 1);
    page.owner->push_back(std::move(item));
    page.items = page.owner->data();
    return IdType(size_++);
  }

  const T& operator[](IdType id) const {
    EPWEAVE_DCHECK(id.index() < size_);
    return pages_[id.index() / kPageItems].items[id.index() % kPageItems];
  }
  T& operator[](IdType id) {
    EPWEAVE_DCHECK(id.index() < size_);
    return own_page(id.index() / kPageItems).items[id.index() % kPageItems];
  }
  std::size_t size() const { return size_; }
  bool contains(IdType id) const { return id.valid() && id.index() < size_; }
  // Whether the item is the same one in both tables: nothing has changed its page since one was
  // copied from the other.
  bool shares(const PagedTable& other, IdType id) const {
    const std::size_t page = id.index() / kPageItems;
    return page < pages_.size() && page < other.pages_.size() &&
           pages_[page].items == other.pages_[page].items;
  }

  auto begin() { return Iterator<PagedTable>{this, 0}; }
  auto end() { return Iterator<PagedTable>{this, size_}; }
  auto begin() const { return Iterator<const PagedTable>{this, 0}; }
  auto end() const { return Iterator<const PagedTable>{this, size_}; }

 private:
  static constexpr std::size_t kPageItems = 256;
  struct Page {
    std::shared_ptr<std::vector<T>> owner;
    T* items;  // where the owner holds them: one step less to an item
  };

  template <class Table>
  struct Iterator {
    Table* table;
    std::size_t place;
    auto& operator*() const { return (*table)[IdType(place)]; }
    Iterator& operator++() { return ++place, *this; }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.place == b.place; }
  };

  Page& own_page(std::size_t number) {
    Page& page = pages_[number];
    if (page.owner.use_count() > 1) copy(page);
    return page;
  }
  static void copy(Page& page) {
    auto own = std::make_shared<std::vector<T>>();
    own->reserve(page.owner->capacity());  // a page that is not full may be added to
    own->assign(page.owner->begin(), page.owner->end());
    page = {own, own->data()};
  }
  // The first page grows with what it has, so that a small table is small.
  void add_page() {
    pages_.push_back({std::make_shared<std::vector<T>>(), nullptr});
    if (pages_.size() > 1) pages_.back().owner->reserve(kPageItems);
  }

  std::vector<Page> pages_;  // each full but for the last
  std::size_t size_ = 0;
};

}  // namespace epweave
