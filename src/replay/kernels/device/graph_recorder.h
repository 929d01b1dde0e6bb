// Work of a stretch (replay/steps/stretches.h) as a graph of the device: written down as it is
// launched, compared with what was written down the last time, launched as a whole.
//
//   begin(s, 3)             what is launched on s is written down from here on: the kernel, how many, the task's bytes
//   launch(s, ...)
//   fill(s, ...)
//   end(s)                  other bytes than the last time: launched kernel by kernel, and kept to
//                           compare with the same: captured as a graph, the first time, and
//                           launched as that graph
//
// Why a graph may be launched again: a task's bytes, which kernel, and how many are all that a
// launch is given (addresses, sizes, strides, numbers, the node for faults), so the same bytes in
// the same order are the same work. No graph is launched on any other ground: data-dependent sizes
// or memory that lies elsewhere make other bytes. That work runs once before it is captured spares
// graphs that would be launched once, and what a kernel or library does at its first call (loading
// code, taking memory) is not captured.
//
// No one waits for work that is only written down: every other call for the stream first launches
// what there is, so that its order is that of the calls. Such an interruption is counted; what
// follows is a part of its own, with its own graph. Two calls do not interrupt. allocate(), as
// nothing is captured yet. And wait(), which is queued at once, ahead of what is written down: that
// orders more than was asked for, and what the event stands for cannot need what was launched
// later. Of another rank that frees memory it comes before or behind a capture, not within.
// Capturing itself is begun and ended in one place, and holds nothing but launches, fills and
// calls.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "replay/kernels/device/forwarding_api.h"
#include "replay/run/rank_device.h"

namespace epweave::replay::device {

// What a stream is given, in order.
struct RecordedWork {
  enum class Kind : std::uint8_t { kLaunch, kFill, kCall };
  struct Entry {
    Kind kind = Kind::kLaunch;
    TaskKind task = TaskKind::kCopy;
    std::int64_t count = 0;                    // kLaunch: of indices; kFill: of bytes
    std::size_t first = 0, size = 0;           // of `bytes`: the task, or the argument of a call
    void* data = nullptr;                      // kFill
    int byte = 0;                              // kFill
    decltype(LibraryCall::run) run = nullptr;  // kCall
    const void* owner = nullptr;               // kCall
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;
  std::vector<std::byte> bytes;
  bool operator==(const RecordedWork&) const = default;
};

class GraphRecorder : public ForwardingApi {
 public:
  using ForwardingApi::ForwardingApi;
  ~GraphRecorder() override;  // nothing that it launched may be underway
  GraphRecorder(const GraphRecorder&) = delete;
  GraphRecorder& operator=(const GraphRecorder&) = delete;

  // A stream whose work may be written down. Before any other thread uses the device.
  void enroll(Stream stream);
  void begin(Stream stream, std::uint32_t stretch);
  void end(Stream stream);
  GraphUse use_of(Stream stream) const;

  void* native(Stream stream) override;
  Error record(Event event, Stream stream) override;
  Error wait(Stream stream, Event event) override;
  Error synchronize(Stream stream) override;
  Error copy_in(Stream stream, void* to, const void* from, std::size_t bytes) override;
  Error copy_out(Stream stream, void* to, const void* from, std::size_t bytes) override;
  Error fill(Stream stream, void* data, int byte, std::size_t bytes) override;
  Error launch(Stream stream, TaskKind kind, const void* task, std::int64_t count) override;
  Error call(Stream stream, const LibraryCall& call) override;
  Error launch_graph(Stream stream, WorkGraph graph) override;

 private:
  struct Slot {
    RecordedWork work;  // of the last time
    WorkGraph graph = nullptr;
    bool is_captured = false;  // the graph is that work
    bool is_refused = false;
  };
  struct Recording {
    std::mutex mutex;  // another rank that frees memory may interrupt
    bool is_open = false;
    std::uint32_t stretch = 0, part = 0;
    RecordedWork work;
    std::map<std::pair<std::uint32_t, std::uint32_t>, Slot> slots;  // by stretch and part
    GraphUse use;
  };
  struct Added {
    RecordedWork::Entry entry;
    const void* bytes = nullptr;
  };

  Recording* find(Stream stream) const;
  // Writes it down, if the stream does that now; else `run` does it.
  template <class Run>
  Error add(Stream stream, const Added& added, const Run& run);
  Error interrupt(Stream stream, const char* why);
  Error launch_part(Stream stream, Recording& recording);
  Error run(Stream stream, const RecordedWork& work);
  Error capture(Stream stream, Slot& slot, Instantiation& how);

  std::unordered_map<Stream, std::unique_ptr<Recording>> recordings_;
};

}  // namespace epweave::replay::device
