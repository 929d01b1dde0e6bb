#include "replay/block_cache.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

namespace epweave::replay {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kLeastKept = SIZE_MAX;  // a use after free is seen
#else
constexpr std::size_t kLeastKept = std::size_t{16} << 10;  // smaller ones malloc serves well
#endif
constexpr std::size_t kClasses = 256;  // four per power of two

struct FreeList {
  std::mutex mutex;
  std::vector<void*> blocks;
};
struct Cache {
  std::array<FreeList, kClasses> lists;
  std::atomic<std::size_t> kept{0};
};
// Never destroyed: tensors may outlive main.
Cache& cache() {
  static Cache* const instance = new Cache;
  return *instance;
}

// The quarter of its power of two that `bytes` is rounded up to.
struct SizeClass {
  std::size_t index, bytes;
};
SizeClass class_of(std::size_t bytes) {
  const auto octave = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1;  // 2^octave < bytes
  const std::size_t step = std::size_t{1} << (octave - 2);
  const std::size_t quarters = (bytes - 1 - (std::size_t{1} << octave)) / step + 1;  // 1..4
  return {octave * 4 + quarters - 1, (std::size_t{1} << octave) + quarters * step};
}

std::size_t round_up(std::size_t bytes) {
  return (bytes == 0 ? kBlockAlignment : bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

void* take_from_system(std::size_t bytes) {
  void* block = std::aligned_alloc(kBlockAlignment, bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

}  // namespace

std::size_t block_bytes(std::size_t bytes) {
  return bytes < kLeastKept ? round_up(bytes) : class_of(bytes).bytes;
}

void* take_block(std::size_t bytes) {
  if (bytes < kLeastKept) return take_from_system(round_up(bytes));
  const SizeClass size = class_of(bytes);
  FreeList& list = cache().lists[size.index];
  {
    const std::lock_guard lock(list.mutex);
    if (!list.blocks.empty()) {
      void* block = list.blocks.back();
      list.blocks.pop_back();
      cache().kept -= size.bytes;
      return block;
    }
  }
  return take_from_system(size.bytes);
}

void give_block(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  if (bytes < kLeastKept) return std::free(block);
  const SizeClass size = class_of(bytes);
  if (cache().kept + size.bytes > kMostKept) return std::free(block);
  FreeList& list = cache().lists[size.index];
  const std::lock_guard lock(list.mutex);
  list.blocks.push_back(block);
  cache().kept += size.bytes;
}

}  // namespace epweave::replay
