#include "replay/kernels/device/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace epweave::replay::device {
namespace {

constexpr int kPoisonByte = 0xff;

}  // namespace

std::size_t pool_block_bytes(std::size_t bytes) {
  constexpr std::size_t kSmallest = 512;
  if (bytes <= kSmallest) return kSmallest;
  const std::size_t step = std::max(kSmallest, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

void check(Error error, const char* what) {
  if (error != nullptr) throw DeviceError(fmt::format("the device failed to {}: {}", what, error));
}

Pool::~Pool() {
  for (const auto& [data, block] : blocks_) {
    for (Event event : block->awaited) api_.destroy_event(event);
    api_.release(block->data);
  }
  for (Event event : events_) api_.destroy_event(event);
}

std::shared_ptr<Storage> Pool::allocate(std::size_t bytes, Stream home, Queue* queue) {
  const std::size_t rounded = pool_block_bytes(bytes);
  Block* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    block = take_free(rounded, home);
    if (block == nullptr) block = make(rounded, home);
    in_use_ += rounded;
    peak_ = std::max(peak_, in_use_);
  }
  if (fill_ == HostMemory::Fill::kPoison)
    check(api_.fill(home, block->data, kPoisonByte, rounded), "fill memory");
  block->pool = shared_from_this();
  const auto give_back = [](void*, std::size_t, void* context) {
    auto* given_out = static_cast<Block*>(context);
    const std::shared_ptr<Pool> pool = std::move(given_out->pool);
    pool->free(given_out);
  };
  return std::make_shared<Storage>(block->data, bytes, give_back, block, queue);
}

bool Pool::later(const Block* a, const Block* b) {
  return a->number > b->number;
}

Pool::Block* Pool::take_free(std::size_t bytes, Stream home) {
  const auto found = free_.find({home, bytes});
  if (found == free_.end() || found->second.empty()) return nullptr;
  Block* block = found->second.front();
  check(await_users(*block), "wait for an event");
  std::pop_heap(found->second.begin(), found->second.end(), later);
  found->second.pop_back();
  return block;
}

// What is queued on the home stream from here on comes behind the other streams' use of the block.
Error Pool::await_users(Block& block) {
  Error first = nullptr;
  for (Event event : std::exchange(block.awaited, {})) {
    const Error error = api_.wait(block.home, event);
    if (first == nullptr) first = error;
    events_.push_back(event);
  }
  return first;
}

Pool::Block* Pool::make(std::size_t bytes, Stream home) {
  void* data = nullptr;
  Error error = api_.allocate(bytes, &data);
  if (error != nullptr) {
    check(release_free(), "free memory");
    error = api_.allocate(bytes, &data);
  }
  if (error != nullptr)
    throw DeviceError(
        fmt::format("the device failed to give {} bytes, {} being in use: {}", bytes, in_use_, error));
  auto block = std::make_unique<Block>();
  block->data = data;
  block->bytes = bytes;
  block->number = made_++;
  block->home = home;
  return (blocks_[data] = std::move(block)).get();
}

void Pool::use(const Storage& storage, Stream stream) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(storage.data());
  if (found == blocks_.end()) return;
  Block& block = *found->second;
  if (block.home == stream) return;
  if (std::find(block.used_on.begin(), block.used_on.end(), stream) == block.used_on.end())
    block.used_on.push_back(stream);
}

void Pool::free(Block* block) {
  const std::lock_guard lock(mutex_);
  in_use_ -= block->bytes;
  for (Stream stream : block->used_on) {
    Event event = nullptr;
    if (events_.empty()) {
      if (api_.make_event(Timing::kNone, &event) != nullptr)
        continue;  // the device is lost; whoever uses it next says so
    } else {
      event = events_.back();
      events_.pop_back();
    }
    (api_.record(event, stream) == nullptr ? block->awaited : events_).push_back(event);
  }
  block->used_on.clear();
  std::vector<Block*>& list = free_[{block->home, block->bytes}];
  list.push_back(block);
  std::push_heap(list.begin(), list.end(), later);
}

// Gives free blocks back to the device, which waits for their work: all of them, also where it
// fails. The first error.
Error Pool::release_free() {
  Error first = nullptr;
  const auto note = [&](Error error) {
    if (first == nullptr) first = error;
  };
  for (auto& [key, list] : free_) {
    for (Block* block : list) {
      note(await_users(*block));
      note(api_.synchronize(block->home));
      note(api_.release(block->data));
      blocks_.erase(block->data);
    }
    list.clear();
  }
  return first;
}

void Pool::release_all() {
  const std::lock_guard lock(mutex_);
  release_free();
}

}  // namespace epweave::replay::device
