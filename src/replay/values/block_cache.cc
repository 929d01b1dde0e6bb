#include "replay/values/block_cache.h"

#include "replay/values/block_use.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <set>

namespace epweave::replay {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kLeastKept = SIZE_MAX;  // a use after free is seen
#else
constexpr std::size_t kLeastKept = std::size_t{16} << 10;  // smaller ones malloc serves well
#endif

constexpr std::size_t kPage = std::size_t{4} << 10;
constexpr std::size_t kPiece = std::size_t{64} << 20;  // what the system is asked for at least

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
}

void* take_small(std::size_t bytes) {
  void* block = std::aligned_alloc(kBlockAlignment, bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

std::byte* map_pages(std::size_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(mapped);
}

// Ranges of free memory, neighbours joined; the smallest that is large enough is given out, of
// equal ones the first.
class FreeRanges {
 public:
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto found = by_size_.lower_bound({bytes, nullptr});
    if (found == by_size_.end()) {
      const std::size_t mapped = std::max(kPiece, bytes);
      add(map_pages(mapped), mapped);
      found = by_size_.lower_bound({bytes, nullptr});
    }
    const auto [size, first] = *found;
    remove(by_address_.find(first));
    if (size != bytes) add(first + bytes, size - bytes);
    return first;
  }

  void give(std::byte* first, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto next = by_address_.lower_bound(first);
    if (next != by_address_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == first) {
        first = previous->first;
        bytes += previous->second;
        remove(previous);
      }
    }
    if (next != by_address_.end() && first + bytes == next->first) {
      bytes += next->second;
      remove(next);
    }
    add(first, bytes);
  }

 private:
  using ByAddress = std::map<std::byte*, std::size_t>;

  void add(std::byte* first, std::size_t bytes) {
    by_address_.emplace(first, bytes);
    by_size_.emplace(bytes, first);
  }
  void remove(ByAddress::iterator range) {
    by_size_.erase({range->second, range->first});
    by_address_.erase(range);
  }

  std::mutex mutex_;
  ByAddress by_address_;
  std::set<std::pair<std::size_t, std::byte*>> by_size_;
};
// Never destroyed: tensors may outlive main.
FreeRanges& free_ranges() {
  static FreeRanges* const instance = new FreeRanges;
  return *instance;
}

std::atomic<std::size_t> bytes_in_use{0}, peak_in_use{0};

void note_taken(std::size_t bytes) {
  const std::size_t now = bytes_in_use += bytes;
  std::size_t peak = peak_in_use;
  while (peak < now && !peak_in_use.compare_exchange_weak(peak, now)) {
  }
}

}  // namespace

std::size_t peak_block_bytes() {
  return peak_in_use;
}
void restart_block_peak() {
  peak_in_use = bytes_in_use.load();
}

std::size_t block_bytes(std::size_t bytes) {
  return round_up(bytes, bytes < kLeastKept ? kBlockAlignment : kPage);
}

void* take_block(std::size_t bytes) {
  note_taken(block_bytes(bytes));
  if (bytes < kLeastKept) return take_small(block_bytes(bytes));
  return free_ranges().take(block_bytes(bytes));
}

void give_block(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  bytes_in_use -= block_bytes(bytes);
  if (bytes < kLeastKept) return std::free(block);
  free_ranges().give(static_cast<std::byte*>(block), block_bytes(bytes));
}

}  // namespace epweave::replay
