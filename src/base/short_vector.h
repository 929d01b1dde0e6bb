// A sequence of plain items, of which a few lie in the object itself: lists of which there are
// many, and nearly all short, take no memory of their own.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>

namespace epweave {

template <class T, std::size_t kInPlace>
class ShortVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>);

 public:
  using value_type = T;

  ShortVector() = default;
  ShortVector(std::initializer_list<T> items) { append(items.begin(), items.size()); }
  ShortVector(const ShortVector& other) { append(other.begin(), other.size()); }
  ShortVector(ShortVector&& other) noexcept
      : few_(other.few_), many_(std::move(other.many_)), room_(other.room_), count_(other.count_) {
    other.room_ = kInPlace;
    other.count_ = 0;
  }
  ShortVector& operator=(const ShortVector& other) {
    if (this == &other) return *this;
    count_ = 0;
    append(other.begin(), other.size());
    return *this;
  }
  ShortVector& operator=(ShortVector&& other) noexcept {
    few_ = other.few_;
    many_ = std::move(other.many_);
    room_ = std::exchange(other.room_, kInPlace);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  ~ShortVector() = default;

  T* begin() { return many_ ? many_.get() : few_.data(); }
  T* end() { return begin() + count_; }
  const T* begin() const { return many_ ? many_.get() : few_.data(); }
  const T* end() const { return begin() + count_; }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  const T& operator[](std::size_t i) const { return begin()[i]; }
  const T& front() const { return begin()[0]; }
  const T& back() const { return begin()[count_ - 1]; }

  void push_back(T item) {
    reserve(count_ + std::size_t{1});
    begin()[count_++] = item;
  }
  void reserve(std::size_t size) {
    if (size <= room_) return;
    const std::size_t room = std::max(size, std::size_t{2} * room_);
    auto more = std::make_unique<T[]>(room);
    std::copy(begin(), end(), more.get());
    many_ = std::move(more);
    room_ = static_cast<std::uint32_t>(room);
  }

  friend bool operator==(const ShortVector& a, const ShortVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend auto operator<=>(const ShortVector& a, const ShortVector& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  void append(const T* items, std::size_t count) {
    reserve(count_ + count);
    std::copy_n(items, count, end());
    count_ += static_cast<std::uint32_t>(count);
  }

  std::array<T, kInPlace> few_{};
  std::unique_ptr<T[]> many_;  // all of them, once there was no room for them in few_
  std::uint32_t room_ = kInPlace;
  std::uint32_t count_ = 0;
};

}  // namespace epweave
