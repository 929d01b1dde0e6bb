#include "passes/schedule/memory_forecast.h"

#include <algorithm>

namespace epweave {

constexpr std::int64_t kVeryLow = INT64_MIN / 4;

// A tree over blocks of places, bottom up: node i has children 2i and 2i + 1.
MemoryForecast::MemoryForecast(const std::vector<std::int64_t>& live) {
  while (leaves_ < live.size()) leaves_ *= 2;
  most_.assign(2 * leaves_, kVeryLow);
  added_.assign(leaves_, 0);
  std::copy(live.begin(), live.end(), most_.begin() + static_cast<std::ptrdiff_t>(leaves_));
  for (std::size_t i = leaves_; i-- > 1;) most_[i] = std::max(most_[2 * i], most_[2 * i + 1]);
}

void MemoryForecast::add(std::size_t from, std::size_t to, std::int64_t bytes) {
  if (from >= to || bytes == 0) return;
  const auto apply = [&](std::size_t i) {
    most_[i] += bytes;
    if (i < leaves_) added_[i] += bytes;
  };
  for (std::size_t l = from + leaves_, r = to + leaves_; l < r; l >>= 1, r >>= 1) {
    if (l & 1) apply(l++);
    if (r & 1) apply(--r);
  }
  raise(from + leaves_);
  raise(to - 1 + leaves_);
}

void MemoryForecast::raise(std::size_t i) {
  for (i >>= 1; i > 0; i >>= 1) most_[i] = std::max(most_[2 * i], most_[2 * i + 1]) + added_[i];
}

std::int64_t MemoryForecast::most(std::size_t from, std::size_t to) const {
  if (from >= to) return kVeryLow;
  std::int64_t left = kVeryLow, right = kVeryLow;
  std::size_t l = from + leaves_, r = to - 1 + leaves_;
  left = most_[l];
  right = most_[r];
  while (l / 2 != r / 2) {
    if (!(l & 1)) left = std::max(left, most_[l + 1]);
    if (r & 1) right = std::max(right, most_[r - 1]);
    l >>= 1;
    r >>= 1;
    left += added_[l];
    right += added_[r];
  }
  std::int64_t most = std::max(left, right);
  for (l >>= 1; l > 0; l >>= 1) most += added_[l];
  return most;
}

}  // namespace epweave
