#include "passes/schedule/memory_forecast.h"

#include <algorithm>

namespace epweave {

constexpr std::int64_t kVeryLow = INT64_MIN / 4;
constexpr std::size_t kBlock = 8;  // places, a cache line

// A tree over blocks of places, bottom up: node i has children 2i and 2i + 1, and the last nodes
// are the blocks.
MemoryForecast::MemoryForecast(const std::vector<std::int64_t>& live) : values_(live) {
  while (blocks_ * kBlock < live.size()) blocks_ *= 2;
  values_.resize(blocks_ * kBlock, kVeryLow);
  most_.resize(2 * blocks_);
  added_.resize(2 * blocks_);
  for (std::size_t b = 0; b < blocks_; ++b)
    most_[blocks_ + b] = most_in_block(b * kBlock, b * kBlock + kBlock);
  for (std::size_t i = blocks_; i-- > 1;) most_[i] = std::max(most_[2 * i], most_[2 * i + 1]);
}

void MemoryForecast::add(std::size_t from, std::size_t to, std::int64_t bytes) {
  if (from >= to || bytes == 0) return;
  const std::size_t first = from / kBlock, last = (to - 1) / kBlock;
  if (first == last) {
    add_in_block(from, to, bytes);
  } else {
    add_in_block(from, first * kBlock + kBlock, bytes);
    add_in_block(last * kBlock, to, bytes);
    const auto add_to = [&](std::size_t i) {
      most_[i] += bytes;
      added_[i] += bytes;
    };
    for (std::size_t l = blocks_ + first + 1, r = blocks_ + last; l < r; l >>= 1, r >>= 1) {
      if (l & 1) add_to(l++);
      if (r & 1) add_to(--r);
    }
  }
  std::size_t l = (blocks_ + first) >> 1, r = (blocks_ + last) >> 1;
  for (; l != r; l >>= 1, r >>= 1) update(l), update(r);
  while (l > 0 && update(l)) l >>= 1;
}

void MemoryForecast::add_in_block(std::size_t from, std::size_t to, std::int64_t bytes) {
  for (std::size_t place = from; place < to; ++place) values_[place] += bytes;
  const std::size_t block = from / kBlock, i = blocks_ + block;
  most_[i] = most_in_block(block * kBlock, block * kBlock + kBlock) + added_[i];
}

std::int64_t MemoryForecast::most_in_block(std::size_t from, std::size_t to) const {
  std::int64_t most = values_[from];
  for (std::size_t place = from + 1; place < to; ++place) most = std::max(most, values_[place]);
  return most;
}

bool MemoryForecast::update(std::size_t i) {
  const std::int64_t most = std::max(most_[2 * i], most_[2 * i + 1]) + added_[i];
  if (most == most_[i]) return false;
  most_[i] = most;
  return true;
}

std::int64_t MemoryForecast::most(std::size_t from, std::size_t to) const {
  if (from >= to) return kVeryLow;
  const std::size_t first = from / kBlock, last = (to - 1) / kBlock;
  std::size_t l = blocks_ + first, r = blocks_ + last;
  std::int64_t most;
  if (first == last) {
    most = most_in_block(from, to) + added_[l];
  } else {
    std::int64_t left = most_in_block(from, first * kBlock + kBlock) + added_[l];
    std::int64_t right = most_in_block(last * kBlock, to) + added_[r];
    while (l / 2 != r / 2) {
      if (!(l & 1)) left = std::max(left, most_[l + 1]);
      if (r & 1) right = std::max(right, most_[r - 1]);
      l >>= 1;
      r >>= 1;
      left += added_[l];
      right += added_[r];
    }
    most = std::max(left, right);
  }
  for (l >>= 1; l > 0; l >>= 1) most += added_[l];
  return most;
}

}  // namespace epweave
