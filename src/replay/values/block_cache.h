// Memory blocks that are kept when freed and given out again.
//
// A run makes and frees tensors of the same few sizes thousands of times. Blocks from the system
// would be cleared by the kernel each time, page by page: a fifth of a run's time.
//
//   void* a = take_block(1 << 20);   // aligned to 64 bytes, contents undefined
//   give_block(a, 1 << 20);
//   void* b = take_block(1 << 20);   // the same memory
//
// Large blocks are whole pages; neighbours that are free are joined, so that blocks of other sizes
// are cut from them. They are never given back to the system: a process keeps the most that it
// needed at a time. Safe on all threads. Built for the address sanitizer nothing is kept.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace epweave::replay {

inline constexpr std::size_t kBlockAlignment = 64;

// Bytes that a block of `bytes` really takes.
std::size_t block_bytes(std::size_t bytes);
// Throws std::bad_alloc.
void* take_block(std::size_t bytes);
void give_block(void* block, std::size_t bytes) noexcept;

// Takes a container's memory from the blocks. Elements made without a value are not initialised.
template <class T>
class BlockAllocator {
 public:
  using value_type = T;
  BlockAllocator() = default;
  template <class U>
  BlockAllocator(const BlockAllocator<U>&) {}  // NOLINT: an allocator converts

  T* allocate(std::size_t count) { return static_cast<T*>(take_block(count * sizeof(T))); }
  void deallocate(T* data, std::size_t count) noexcept { give_block(data, count * sizeof(T)); }
  template <class U>
  void construct(U* at) {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
  friend bool operator==(const BlockAllocator&, const BlockAllocator&) { return true; }
};

// Scratch memory of a kernel. `Buffer<float> x(n)` is not initialised, `Buffer<float> x(n, 0.0F)`
// is.
template <class T>
using Buffer = std::vector<T, BlockAllocator<T>>;

}  // namespace epweave::replay
