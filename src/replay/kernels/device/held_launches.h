// A device on which the host queues all that a span measures before any of it begins, so that no
// time of the host is in it.
//
//   hold(s)                 what follows on s does not begin
//   record(begin, s)
//   launch(s, ...)
//   launch(s, ...)
//   record(end, s)
//   let_go(s)
//
// Where the host waits in between, or asks for memory, the work is let go first: the span then
// holds the host's time too, and has_host_time() says so. One thread at a time.
#pragma once

#include "replay/kernels/device/forwarding_api.h"

namespace epweave::replay::device {

class HeldLaunches : public ForwardingApi {
 public:
  // Launches that are held back at most. A GPU's queue ends (about 1,000 launches); behind that the
  // host would wait for the work that it holds back.
  static constexpr int kMostLaunches = 512;

  using ForwardingApi::ForwardingApi;

  Error hold(Stream stream) override;
  Error let_go(Stream stream, bool* in_time) override;
  // Of the last hold.
  bool has_host_time() const { return has_host_time_; }

  Error allocate(std::size_t bytes, void** data) override;
  Error release(void* data) override;
  Error synchronize(Stream stream) override;
  Error copy_in(Stream stream, void* to, const void* from, std::size_t bytes) override;
  Error copy_out(Stream stream, void* to, const void* from, std::size_t bytes) override;
  Error fill(Stream stream, void* data, int byte, std::size_t bytes) override;
  Error launch(Stream stream, TaskKind kind, const void* task, std::int64_t count) override;
  Error call(Stream stream, const LibraryCall& call) override;

 private:
  Error end_hold(bool* in_time);
  Error stop_holding();
  Error count_launch();

  Stream held_ = nullptr;
  int launches_ = 0;
  bool has_host_time_ = false;
};

}  // namespace epweave::replay::device
