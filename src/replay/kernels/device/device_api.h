// A device as the host sees it: memory, streams, events, launches. Two implement it: CUDA (cuda/, a
// shared object that is loaded when asked for) and the emulated device (emulated.h). C++17, plain
// types only: nvcc compiles one side, the host compiler the other.
//
// Streams and events mean what CUDA's do. Every call may come from any thread. A call that fails
// returns why (text that lives as long as the device), else null.
#pragma once

#include <cstddef>
#include <cstdint>

#include "replay/kernels/tasks/task_list.h"

namespace epweave::replay::device {

using namespace tasks;  // NOLINT: what a device runs

using Error = const char*;
struct StreamTag;
struct EventTag;
struct WorkGraphTag;
using Stream = StreamTag*;
using Event = EventTag*;
using WorkGraph = WorkGraphTag*;  // work that was captured: launched as a whole, as often as wanted

enum class Priority : std::uint8_t { kNormal, kHigh };
enum class Timing : std::uint8_t { kNone, kTimed };  // of an event: whether it tells when it was passed
// How a graph came to hold what was captured.
enum class Instantiation : std::uint8_t { kNew, kUpdated };

// Work that another library queues: run(owner, argument, stream) queues it on the native stream, or
// says why not. The argument's bytes are copied, and are all that the work depends on: addresses,
// sizes, the algorithm.
struct LibraryCall {
  Error (*run)(const void* owner, const void* argument, void* native_stream);
  const void* owner;
  const void* argument;
  std::size_t argument_bytes;
};

struct DeviceFacts {
  char name[256];
  int multiprocessors, major, minor;
  int driver, runtime;  // versions, as CUDA numbers them; 0: none
  std::size_t memory;   // bytes
  std::size_t free;     // of these, not taken when the device was asked: contexts are
};

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;
  virtual Error find_facts(DeviceFacts& facts) = 0;
  // The calling thread uses this device from now on, in calls of other libraries too.
  virtual Error enter() = 0;
  virtual Error allocate(std::size_t bytes, void** data) = 0;
  virtual Error release(void* data) = 0;
  virtual Error make_stream(Priority priority, Stream* stream) = 0;
  virtual Error destroy_stream(Stream stream) = 0;
  // What other libraries take as this stream: a cudaStream_t, or an EmulatedStream (emulated.h).
  virtual void* native(Stream stream) = 0;
  virtual Error make_event(Timing timing, Event* event) = 0;
  virtual Error destroy_event(Event event) = 0;
  virtual Error record(Event event, Stream stream) = 0;
  virtual Error wait(Stream stream, Event event) = 0;  // what follows on the stream waits for the event
  virtual Error synchronize(Stream stream) = 0;        // the host waits for the stream
  // Whether all work before the event is done; true of one that was never recorded.
  virtual Error has_passed(Event event, bool* passed) = 0;
  // Between two timed events that have passed.
  virtual Error find_seconds(Event from, Event to, double* seconds) = 0;
  // Named ranges of the calling thread, for profilers: NVTX. They nest.
  virtual void open_range(const char* name) = 0;
  virtual void close_range() = 0;
  // `from` may change once the call returns.
  virtual Error copy_in(Stream stream, void* to, const void* from, std::size_t bytes) = 0;
  // The host waits for it.
  virtual Error copy_out(Stream stream, void* to, const void* from, std::size_t bytes) = 0;
  virtual Error fill(Stream stream, void* data, int byte, std::size_t bytes) = 0;
  // `count`: indices, or blocks of a product. The task's bytes are copied.
  virtual Error launch(Stream stream, TaskKind kind, const void* task, std::int64_t count) = 0;
  virtual Error call(Stream stream, const LibraryCall& call) = 0;

  // What is queued on the stream from here on begins once the host lets it go. All work of the
  // device is done then, and until the host lets go it queues on streams, and neither waits nor
  // asks for memory.
  virtual Error hold(Stream stream) = 0;
  // `*in_time`: nothing had begun before. A GPU does not wait for ever.
  virtual Error let_go(Stream stream, bool* in_time) = 0;

  // What the calling thread queues on the stream from here on is not run but becomes a graph.
  // Between the two calls the thread may launch, fill and call on the stream; anything else fails,
  // and end_capture() then fails too, or, of a copy, may not.
  virtual Error begin_capture(Stream stream) = 0;
  // `*graph`: null, or a graph of before: it is changed where the device can do that, else
  // replaced. Null after a failure; the stream does not capture any more in either case.
  virtual Error end_capture(Stream stream, WorkGraph* graph, Instantiation* how) = 0;
  // The work of the graph as it is now, in the order of the stream.
  virtual Error launch_graph(Stream stream, WorkGraph graph) = 0;
  virtual Error destroy_graph(WorkGraph graph) = 0;  // none of its launches may be underway
};

// The entry point of the shared object: a device, or null and why there is none. `version` must be
// the object's own, so that a program never runs another build's kernels.
inline constexpr int kApiVersion = 6;
inline constexpr const char* kEntryPoint = "epweave_open_device";
using OpenDevice = DeviceApi* (*)(int version, std::size_t fingerprint, int ordinal, char* problem,
                                  std::size_t problem_bytes);

// Differs where tasks are laid out otherwise.
inline constexpr std::size_t task_fingerprint() {
  std::size_t print = 0;
#define EPWEAVE_PRINT(Name, ...) print = print * 31 + sizeof(__VA_ARGS__);
  EPWEAVE_DEVICE_TASKS(EPWEAVE_PRINT)
  EPWEAVE_DEVICE_BLOCK_TASKS(EPWEAVE_PRINT)
  EPWEAVE_DEVICE_ROW_TASKS(EPWEAVE_PRINT)
  EPWEAVE_DEVICE_WARP_TASKS(EPWEAVE_PRINT)
#undef EPWEAVE_PRINT
  return print;
}

}  // namespace epweave::replay::device
