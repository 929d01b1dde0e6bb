// Memory for small arrays that live as long as their owner: taken from large blocks, given back all
// at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace epweave {

class Arena {
 public:
  // A copy of the items that stays valid for the life of the arena.
  template <class T>
  std::span<const T> store(std::span<const T> items) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= alignof(std::max_align_t));
    if (items.empty()) return {};
    T* const copy = static_cast<T*>(static_cast<void*>(take(items.size_bytes(), alignof(T))));
    std::uninitialized_copy(items.begin(), items.end(), copy);
    return {copy, items.size()};
  }

 private:
  static constexpr std::size_t kBlockBytes = 64 * 1024;

  std::byte* take(std::size_t bytes, std::size_t alignment) {
    std::size_t begin = (used_ + alignment - 1) / alignment * alignment;
    if (blocks_.empty() || begin + bytes > size_) {
      size_ = std::max(kBlockBytes, bytes);
      blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(size_));
      begin = 0;
    }
    used_ = begin + bytes;
    return blocks_.back().get() + begin;
  }

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::size_t size_ = 0;  // of the last block
  std::size_t used_ = 0;  // of it
};

}  // namespace epweave
