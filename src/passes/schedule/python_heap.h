// Python's heapq: the same items at the same places of the array, which who scans the array can
// tell.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace epweave {

template <class Item>
class PythonHeap {
 public:
  bool empty() const { return items_.empty(); }
  const Item& top() const { return items_.front(); }
  const std::vector<Item>& items() const { return items_; }

  void push(Item item) {
    items_.push_back(item);
    rise(0, items_.size() - 1);
  }

  Item pop() {
    Item last = items_.back();
    items_.pop_back();
    if (items_.empty()) return last;
    std::swap(items_.front(), last);
    sink(0);
    return last;
  }

  // Without the items at these positions, which ascend.
  void remove(std::span<const std::size_t> positions) {
    if (positions.empty()) return;
    std::size_t kept = 0, next = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (next < positions.size() && positions[next] == i) {
        ++next;
      } else {
        items_[kept++] = items_[i];
      }
    }
    items_.resize(kept);
    for (std::size_t i = items_.size() / 2; i-- > 0;) sink(i);
  }

 private:
  // Up from `at`, not above `top`.
  void rise(std::size_t top, std::size_t at) {
    const Item item = items_[at];
    for (; at > top; at = (at - 1) / 2) {
      const Item& parent = items_[(at - 1) / 2];
      if (!(item < parent)) break;
      items_[at] = parent;
    }
    items_[at] = item;
  }
  // Down to a leaf by the smaller children, and up again.
  void sink(std::size_t at) {
    const std::size_t top = at;
    const Item item = items_[at];
    for (std::size_t child = 2 * at + 1; child < items_.size(); child = 2 * at + 1) {
      if (child + 1 < items_.size() && !(items_[child] < items_[child + 1])) ++child;
      items_[at] = items_[child];
      at = child;
    }
    items_[at] = item;
    rise(top, at);
  }

  std::vector<Item> items_;
};

}  // namespace epweave
