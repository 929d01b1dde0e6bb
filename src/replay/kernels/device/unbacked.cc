#include "replay/kernels/device/unbacked.h"

#include <cstring>

namespace epweave::replay::device {
namespace {

class UnbackedDevice : public DeviceApi {
 public:
  Error find_facts(DeviceFacts& facts) override {
    facts = {};
    return nullptr;
  }
  Error enter() override { return nullptr; }
  Error allocate(std::size_t bytes, void** data) override {
    *data = reinterpret_cast<void*>(next_);  // NOLINT: an address that is never looked at
    next_ += (bytes + kAlignment) / kAlignment * kAlignment;
    return nullptr;
  }
  Error release(void*) override { return nullptr; }
  Error make_stream(Priority, Stream* stream) override {
    *stream = nullptr;
    return nullptr;
  }
  Error destroy_stream(Stream) override { return nullptr; }
  void* native(Stream) override { return nullptr; }
  Error make_event(Timing, Event* event) override {
    *event = nullptr;
    return nullptr;
  }
  Error destroy_event(Event) override { return nullptr; }
  Error record(Event, Stream) override { return nullptr; }
  Error wait(Stream, Event) override { return nullptr; }
  Error synchronize(Stream) override { return nullptr; }
  Error has_passed(Event, bool* passed) override {
    *passed = true;
    return nullptr;
  }
  Error find_seconds(Event, Event, double* seconds) override {
    *seconds = 0;
    return nullptr;
  }
  void open_range(const char*) override {}
  void close_range() override {}
  Error copy_in(Stream, void*, const void*, std::size_t) override { return nullptr; }
  Error copy_out(Stream, void* to, const void*, std::size_t bytes) override {
    std::memset(to, 1, bytes);
    return nullptr;
  }
  Error fill(Stream, void*, int, std::size_t) override { return nullptr; }
  Error launch(Stream, TaskKind, const void*, std::int64_t) override { return nullptr; }
  Error call(Stream, const LibraryCall&) override { return nullptr; }
  Error hold(Stream) override { return nullptr; }
  Error let_go(Stream, bool* in_time) override {
    *in_time = true;
    return nullptr;
  }
  Error begin_capture(Stream) override { return "it captures nothing"; }
  Error end_capture(Stream, WorkGraph*, Instantiation*) override { return "it captures nothing"; }
  Error launch_graph(Stream, WorkGraph) override { return "it captures nothing"; }
  Error destroy_graph(WorkGraph) override { return nullptr; }

 private:
  static constexpr std::uintptr_t kAlignment = 512;
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
};

}  // namespace

std::unique_ptr<DeviceApi> make_unbacked_device() {
  return std::make_unique<UnbackedDevice>();
}

}  // namespace epweave::replay::device
