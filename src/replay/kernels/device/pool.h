// Device memory that is kept when freed and given out again, ordered by streams instead of by
// waiting.
//
// A block belongs to the stream it was allocated for. It may be freed while work that uses it is
// still queued: the next owner on the same stream comes later on that stream. Where another stream
// used it too (`use`), the home stream waits for that stream's work before the block is used again.
// So nothing here waits for the device, and which block is given out does not depend on timing.
//
// Of a stream's free blocks of a size, the one that was made first is given out. So requests and
// returns in the same order give the same addresses in every run, from the first one on.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "replay/kernels/device/device_api.h"
#include "replay/run/executor.h"
#include "replay/values/tensor.h"

namespace epweave::replay::device {

// Throws DeviceError where there is an error: "the device failed to WHAT: ERROR".
void check(Error error, const char* what);

// Bytes of the block that serves a request: sizes are rounded up to one of eight steps between
// powers of two, so that blocks fit again.
std::size_t pool_block_bytes(std::size_t bytes);

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  Pool(DeviceApi& api, HostMemory::Fill fill) : api_(api), fill_(fill) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // `queue` is what the storage names as its own.
  std::shared_ptr<Storage> allocate(std::size_t bytes, Stream home, Queue* queue);
  // Work that is queued on `stream` uses the storage.
  void use(const Storage& storage, Stream stream);
  std::size_t peak_bytes() const { return peak_; }
  // Must come before the home streams are destroyed. What the device refuses is left to its end.
  void release_all();

 private:
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
    std::size_t number = 0;  // in the order in which blocks are made
    Stream home = nullptr;
    std::shared_ptr<Pool> pool;   // of this block, while it is given out
    std::vector<Stream> used_on;  // other streams, since it was given out
    std::vector<Event> awaited;   // what the home stream waits for before it is used again
  };
  static bool later(const Block* a, const Block* b);
  Block* take_free(std::size_t bytes, Stream home);
  Error await_users(Block& block);
  Block* make(std::size_t bytes, Stream home);
  void free(Block* block);
  Error release_free();

  DeviceApi& api_;
  HostMemory::Fill fill_;
  std::mutex mutex_;
  std::unordered_map<const void*, std::unique_ptr<Block>> blocks_;      // all
  std::map<std::pair<Stream, std::size_t>, std::vector<Block*>> free_;  // heaps, by number
  std::vector<Event> events_;                                           // to be used again
  std::size_t made_ = 0;
  std::size_t in_use_ = 0, peak_ = 0;
};

}  // namespace epweave::replay::device
