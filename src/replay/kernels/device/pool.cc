#include "replay/kernels/device/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

namespace epweave::replay::device {
namespace {

constexpr int kPoisonByte = 0xff;
constexpr std::size_t kUnit = 512;
constexpr std::size_t kRowOfSegment = 16;  // a new segment is one of so many parts of its row

bool splits_segments() {
#ifdef __SANITIZE_ADDRESS__
  return false;
#else
  const char* blocks = std::getenv("EPWEAVE_DEVICE_BLOCKS");
  return blocks == nullptr || std::string_view(blocks) != "whole";
#endif
}

}  // namespace

std::size_t pool_block_bytes(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kUnit - 1) / kUnit) * kUnit;
}

void check(Error error, const char* what) {
  if (error != nullptr) throw DeviceError(fmt::format("the device failed to {}: {}", what, error));
}

Pool::Pool(DeviceApi& api, HostMemory::Fill fill) : api_(api), fill_(fill), is_split_(splits_segments()) {}

Pool::~Pool() {
  for (const auto& [home, row] : rows_)
    for (const auto& segment : row) {
      for (const auto& [offset, place] : segment->free)
        for (const Awaited& awaited : place.awaited) api_.destroy_event(awaited.event);
      api_.release(segment->data);
    }
  for (Event event : events_) api_.destroy_event(event);
}

std::shared_ptr<Storage> Pool::allocate(std::size_t bytes, Stream home, Queue* queue) {
  const std::size_t rounded = pool_block_bytes(bytes);
  Block* block = nullptr;
  {
    const std::lock_guard lock(mutex_);
    Row& row = rows_[home];
    std::unique_ptr<Block> taken = take_free(rounded, row);
    if (taken == nullptr) {
      Segment& segment = make(rounded, home, row);
      taken = take(rounded, segment, segment.free.begin());
    }
    block = taken.get();
    blocks_[block->data] = std::move(taken);
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

std::unique_ptr<Pool::Block> Pool::take_free(std::size_t bytes, Row& row) {
  for (const auto& segment : row) {
    if (!is_split_ && segment->bytes != bytes) continue;
    for (auto at = segment->free.begin(); at != segment->free.end(); ++at)
      if (at->second.bytes >= bytes) return take(bytes, *segment, at);
  }
  return nullptr;
}

std::unique_ptr<Pool::Block> Pool::take(std::size_t bytes, Segment& segment,
                                        std::map<std::size_t, Place>::iterator at) {
  const std::size_t offset = at->first;
  Place place = std::move(at->second);
  segment.free.erase(at);
  const Error error = await(segment.home, place.awaited);
  if (error != nullptr) put_back(segment, offset, {place.bytes, {}});
  check(error, "wait for an event");
  if (place.bytes > bytes) segment.free[offset + bytes] = {place.bytes - bytes, {}};
  auto block = std::make_unique<Block>();
  block->data = segment.data + offset;
  block->bytes = bytes;
  block->segment = &segment;
  return block;
}

// What is queued on the home stream from here on comes behind the other streams' use of the place.
Error Pool::await(Stream home, std::vector<Awaited>& awaited) {
  Error first = nullptr;
  for (const Awaited& one : std::exchange(awaited, {})) {
    const Error error = api_.wait(home, one.event);
    if (first == nullptr) first = error;
    events_.push_back(one.event);
  }
  return first;
}

Pool::Segment& Pool::make(std::size_t bytes, Stream home, Row& row) {
  std::size_t of_row = 0;
  for (const auto& segment : row) of_row += segment->bytes;
  std::size_t wanted = is_split_ ? std::max(bytes, pool_block_bytes(of_row / kRowOfSegment)) : bytes;
  void* data = nullptr;
  Error error = ask(wanted, &data);
  if (error != nullptr && wanted != bytes) error = ask(wanted = bytes, &data);
  if (error != nullptr) {
    check(release_free(), "free memory");
    error = ask(bytes, &data);
  }
  if (error != nullptr)
    throw DeviceError(
        fmt::format("the device failed to give {} bytes, {} being in use: {}", bytes, in_use_, error));
  auto segment = std::make_unique<Segment>();
  segment->data = static_cast<std::byte*>(data);
  segment->bytes = wanted;
  segment->home = home;
  segment->free[0] = {wanted, {}};
  return *row.emplace_back(std::move(segment));
}

Error Pool::ask(std::size_t bytes, void** data) {
  const Error error = api_.allocate(bytes, data);
  if (error == nullptr) asked_ += bytes;
  return error;
}

void Pool::use(const Storage& storage, Stream stream) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(storage.data());
  if (found == blocks_.end()) return;
  Block& block = *found->second;
  if (block.segment->home == stream) return;
  if (std::find(block.used_on.begin(), block.used_on.end(), stream) == block.used_on.end())
    block.used_on.push_back(stream);
}

// Of a stream's events the last one: it comes behind the others.
void Pool::note(std::vector<Awaited>& all, Awaited one) {
  for (Awaited& other : all) {
    if (other.stream != one.stream) continue;
    if (other.number < one.number) std::swap(other, one);
    events_.push_back(one.event);
    return;
  }
  all.push_back(one);
}

void Pool::free(Block* block) {
  const std::lock_guard lock(mutex_);
  in_use_ -= block->bytes;
  Place place{block->bytes, {}};
  for (Stream stream : block->used_on) {
    Event event = nullptr;
    if (events_.empty()) {
      if (api_.make_event(Timing::kNone, &event) != nullptr)
        continue;  // the device is lost; whoever uses it next says so
    } else {
      event = events_.back();
      events_.pop_back();
    }
    if (api_.record(event, stream) == nullptr)
      place.awaited.push_back({stream, event, recorded_++});
    else
      events_.push_back(event);
  }
  Segment& segment = *block->segment;
  const auto offset = static_cast<std::size_t>(block->data - segment.data);
  blocks_.erase(block->data);
  put_back(segment, offset, std::move(place));
}

// Joined with the free places beside it.
void Pool::put_back(Segment& segment, std::size_t offset, Place place) {
  const auto join = [&](Place& other) {
    place.bytes += other.bytes;
    for (const Awaited& one : other.awaited) note(place.awaited, one);
  };
  const auto next = segment.free.lower_bound(offset);
  if (next != segment.free.end() && next->first == offset + place.bytes) {
    join(next->second);
    segment.free.erase(next);
  }
  const auto behind = segment.free.lower_bound(offset);
  if (behind != segment.free.begin()) {
    const auto before = std::prev(behind);
    if (before->first + before->second.bytes == offset) {
      join(before->second);
      offset = before->first;
    }
  }
  segment.free[offset] = std::move(place);
}

// Gives free segments back to the device, which waits for their work: all of them, also where it
// fails. The first error.
Error Pool::release_free() {
  Error first = nullptr;
  const auto note_error = [&](Error error) {
    if (first == nullptr) first = error;
  };
  for (auto& [home, row] : rows_)
    std::erase_if(row, [&, at = home](const std::unique_ptr<Segment>& segment) {
      if (!segment->is_free()) return false;
      note_error(await(at, segment->free.begin()->second.awaited));
      note_error(api_.synchronize(at));
      note_error(api_.release(segment->data));
      asked_ -= segment->bytes;
      return true;
    });
  return first;
}

void Pool::release_all() {
  const std::lock_guard lock(mutex_);
  release_free();
}

}  // namespace epweave::replay::device
