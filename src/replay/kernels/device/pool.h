// Device memory that is kept when freed and given out again, ordered by streams instead of by
// waiting.
//
// A block belongs to the stream it was allocated for. It may be freed while work that uses it is
// still queued: the next owner on the same stream comes later on that stream. Where another stream
// used it too (`use`), the home stream waits for that stream's work before the block is used again.
// So nothing here waits for the device, and which block is given out does not depend on timing.
//
// A stream's memory is a row of segments, each asked of the device once. A request gets the first
// place of the row that is free and large enough; free places side by side are one. A segment that
// is made for a request is a sixteenth of the row at least, so that few are asked for. Requests and
// returns in the same order give the same addresses in every run, from the first one on: segments
// that a later request makes lie behind those that a request looks at first.
//
// EPWEAVE_DEVICE_BLOCKS=whole, and a build with AddressSanitizer: each request has a segment of its
// own size, so that tools see what is read or written beyond it.
#pragma once

#include <cstddef>
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

// Bytes of the block that serves a request.
std::size_t pool_block_bytes(std::size_t bytes);

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  Pool(DeviceApi& api, HostMemory::Fill fill);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // `queue` is what the storage names as its own.
  std::shared_ptr<Storage> allocate(std::size_t bytes, Stream home, Queue* queue);
  // Work that is queued on `stream` uses the storage.
  void use(const Storage& storage, Stream stream);
  std::size_t peak_bytes() const { return peak_; }    // in use
  std::size_t asked_bytes() const { return asked_; }  // of the device, and not given back
  // Must come before the home streams are destroyed. What the device refuses is left to its end.
  void release_all();

 private:
  struct Segment;
  // What another stream did with a place: the last event of each.
  struct Awaited {
    Stream stream = nullptr;
    Event event = nullptr;
    std::size_t number = 0;  // in the order in which they were recorded
  };
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    Segment* segment = nullptr;
    std::shared_ptr<Pool> pool;   // of this block, while it is given out
    std::vector<Stream> used_on;  // other streams, since it was given out
  };
  struct Place {
    std::size_t bytes = 0;
    std::vector<Awaited> awaited;  // what the home stream waits for before it is used again
  };
  struct Segment {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    Stream home = nullptr;
    std::map<std::size_t, Place> free;  // by offset
    bool is_free() const { return free.size() == 1 && free.begin()->second.bytes == bytes; }
  };
  using Row = std::vector<std::unique_ptr<Segment>>;

  std::unique_ptr<Block> take_free(std::size_t bytes, Row& row);
  std::unique_ptr<Block> take(std::size_t bytes, Segment& segment, std::map<std::size_t, Place>::iterator at);
  Segment& make(std::size_t bytes, Stream home, Row& row);
  Error ask(std::size_t bytes, void** data);
  Error await(Stream home, std::vector<Awaited>& awaited);
  void note(std::vector<Awaited>& all, Awaited one);
  void free(Block* block);
  void put_back(Segment& segment, std::size_t offset, Place place);
  Error release_free();

  DeviceApi& api_;
  HostMemory::Fill fill_;
  bool is_split_;
  std::mutex mutex_;
  std::map<Stream, Row> rows_;
  std::unordered_map<const void*, std::unique_ptr<Block>> blocks_;  // that are given out
  std::vector<Event> events_;                                       // to be used again
  std::size_t recorded_ = 0;
  std::size_t in_use_ = 0, peak_ = 0, asked_ = 0;
};

}  // namespace epweave::replay::device
