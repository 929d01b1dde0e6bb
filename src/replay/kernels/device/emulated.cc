#include "replay/kernels/device/emulated.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "replay/kernels/device/emulated_kernels.h"
#include "replay/kernels/device/emulated_memory.h"

namespace epweave::replay::device {
namespace {

void run_kind(TaskKind kind, const void* task, std::int64_t count) {
  switch (kind) {
#define EPWEAVE_RUN(Name, ...) \
  case TaskKind::k##Name:      \
    return run_emulated<__VA_ARGS__>(task, count);
    EPWEAVE_DEVICE_TASKS(EPWEAVE_RUN)
#undef EPWEAVE_RUN
    default:
      if (is_warp_kind(kind)) return run_emulated_warps(kind, task, count);
      return is_row_kind(kind) ? run_emulated_rows(kind, task, count)
                               : run_emulated_product(kind, task, count);
  }
}

// ---- streams -------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;

struct HostStream;

// The first `operations` operations of a stream.
struct Point {
  HostStream* stream = nullptr;
  std::uint64_t operations = 0;
};

struct HostEvent {
  Point point;
  Timing timing = Timing::kNone;
  std::shared_ptr<Clock::time_point> passed;  // of a timed one: written when it is passed
};

struct Operation;
using Operations = std::vector<Operation>;

struct Operation {
  enum class Kind { kLaunch, kCopyIn, kFill, kWait, kCall, kStamp, kGraph } kind = Kind::kLaunch;
  TaskKind task = TaskKind::kCopy;
  std::vector<std::byte> bytes;  // the task, or what is copied in
  std::int64_t count = 0;        // of indices, or of bytes
  void* to = nullptr;
  int byte = 0;
  Point point;                                // kWait
  void (*run)(void*) = nullptr;               // kCall
  std::shared_ptr<void> argument;             // kCall
  std::shared_ptr<Clock::time_point> passed;  // kStamp
  std::shared_ptr<const Operations> graph;    // kGraph: as it was when it was launched
};

struct HostGraph {
  std::shared_ptr<const Operations> operations;
};

class EmulatedDevice;

struct HostStream : EmulatedStream {
  EmulatedDevice* device = nullptr;
  std::deque<Operation> waiting;
  std::uint64_t queued = 0, done = 0;
  bool is_ending = false;
  std::thread worker;  // of a concurrent device
  bool is_capturing = false;
  Error capture_failure = nullptr;
  Operations captured;
};

void execute(const Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::kLaunch:
      return run_kind(operation.task, operation.bytes.data(), operation.count);
    case Operation::Kind::kCopyIn:
      if (!operation.bytes.empty()) std::memcpy(operation.to, operation.bytes.data(), operation.bytes.size());
      return;
    case Operation::Kind::kFill:
      if (operation.count != 0)
        std::memset(operation.to, operation.byte, static_cast<std::size_t>(operation.count));
      return;
    case Operation::Kind::kCall:
      return operation.run(operation.argument.get());
    case Operation::Kind::kStamp:
      *operation.passed = Clock::now();
      return;
    case Operation::Kind::kGraph:
      for (const Operation& each : *operation.graph) execute(each);
      return;
    case Operation::Kind::kWait:
      return;
  }
}

class EmulatedDevice : public DeviceApi {
 public:
  EmulatedDevice(Emulation kind, HostAccess access) : kind_(kind), memory_(access) {}

  Error find_facts(DeviceFacts& facts) override {
    facts = {};
    std::strcpy(facts.name, "emulated by the CPU");
    return nullptr;
  }
  Error enter() override { return nullptr; }
  Error allocate(std::size_t bytes, void** data) override {
    if (const Error error = refuse_in_capture()) return error;
    if (const Error error = refuse_while_held()) return error;
    *data = memory_.allocate(bytes);
    return *data == nullptr ? "out of memory" : nullptr;
  }
  Error release(void* data) override {
    if (const Error error = refuse_in_capture()) return error;
    if (const Error error = refuse_while_held()) return error;
    memory_.release(data);
    return nullptr;
  }
  Error make_stream(Priority, Stream* stream) override {
    auto* made = new HostStream;
    made->enqueue = [](EmulatedStream* to, const EmulatedWork& work) {
      auto* host = static_cast<HostStream*>(to);
      Operation operation;
      operation.kind = Operation::Kind::kCall;
      operation.run = work.run;
      operation.argument = std::shared_ptr<void>(work.argument, [destroy = work.destroy](void* argument) {
        if (destroy != nullptr) destroy(argument);
      });
      host->device->add(reinterpret_cast<Stream>(host), std::move(operation));
    };
    made->device = this;
    {
      const std::lock_guard lock(mutex_);
      streams_.insert(made);
    }
    if (kind_ == Emulation::kConcurrent) made->worker = std::thread([this, made] { work(*made); });
    *stream = reinterpret_cast<Stream>(made);
    return nullptr;
  }
  Error destroy_stream(Stream stream) override {
    HostStream* host = at(stream);
    if (host->worker.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        host->is_ending = true;
      }
      changed_.notify_all();
      host->worker.join();
    }
    {
      const std::lock_guard lock(mutex_);
      streams_.erase(host);
    }
    delete host;
    return nullptr;
  }
  void* native(Stream stream) override { return static_cast<EmulatedStream*>(at(stream)); }
  Error make_event(Timing timing, Event* event) override {
    auto* made = new HostEvent;
    made->timing = timing;
    *event = reinterpret_cast<Event>(made);
    return nullptr;
  }
  Error destroy_event(Event event) override {
    delete at(event);
    return nullptr;
  }
  Error record(Event event, Stream stream) override {
    if (const Error error = refuse_in_capture(stream)) return error;
    const std::lock_guard lock(mutex_);
    if (at(event)->timing == Timing::kTimed) {
      Operation operation;
      operation.kind = Operation::Kind::kStamp;
      operation.passed = at(event)->passed = std::make_shared<Clock::time_point>();
      push(stream, std::move(operation));
    }
    at(event)->point = {at(stream), at(stream)->queued};
    return nullptr;
  }
  Error wait(Stream stream, Event event) override {
    if (const Error error = refuse_in_capture(stream)) return error;
    Operation operation;
    operation.kind = Operation::Kind::kWait;
    const std::lock_guard lock(mutex_);
    operation.point = at(event)->point;
    if (operation.point.stream == nullptr) return nullptr;  // never recorded: complete, as in CUDA
    push(stream, std::move(operation));
    return nullptr;
  }
  Error has_passed(Event event, bool* passed) override {
    if (const Error error = refuse_in_capture()) return error;
    const std::lock_guard lock(mutex_);
    const Point& point = at(event)->point;
    *passed = point.stream == nullptr || point.stream->done >= point.operations;
    return nullptr;
  }
  Error find_seconds(Event from, Event to, double* seconds) override {
    const std::lock_guard lock(mutex_);
    if (at(from)->passed == nullptr || at(to)->passed == nullptr) return "an event has no time";
    *seconds = std::chrono::duration<double>(*at(to)->passed - *at(from)->passed).count();
    return nullptr;
  }
  void open_range(const char*) override {}
  void close_range() override {}
  Error synchronize(Stream stream) override {
    if (const Error error = refuse_in_capture(stream)) return error;
    if (const Error error = refuse_while_held()) return error;
    std::unique_lock lock(mutex_);
    finish(lock, {at(stream), at(stream)->queued});
    return nullptr;
  }
  Error copy_in(Stream stream, void* to, const void* from, std::size_t bytes) override {
    if (const Error error = refuse_in_capture(stream)) return error;
    if (const Error error = refuse_while_held()) return error;
    Operation operation;
    operation.kind = Operation::Kind::kCopyIn;
    operation.to = to;
    operation.bytes.assign(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes);
    return add(stream, std::move(operation));
  }
  Error copy_out(Stream stream, void* to, const void* from, std::size_t bytes) override {
    if (const Error error = synchronize(stream)) return error;
    const EmulatedMemory::Work work(memory_);
    if (bytes != 0) std::memcpy(to, from, bytes);
    return nullptr;
  }
  Error fill(Stream stream, void* data, int byte, std::size_t bytes) override {
    Operation operation;
    operation.kind = Operation::Kind::kFill;
    operation.to = data;
    operation.byte = byte;
    operation.count = static_cast<std::int64_t>(bytes);
    return add(stream, std::move(operation));
  }
  Error launch(Stream stream, TaskKind kind, const void* task, std::int64_t count) override {
    Operation operation;
    operation.task = kind;
    operation.count = count;
    const auto* first = static_cast<const std::byte*>(task);
    operation.bytes.assign(first, first + bytes_of_task(kind));
    return add(stream, std::move(operation));
  }
  Error call(Stream stream, const LibraryCall& call) override {
    return call.run(call.owner, call.argument, native(stream));
  }

  Error hold(Stream stream) override {
    if (const Error error = refuse_in_capture(stream)) return error;
    if (const Error error = refuse_while_held()) return error;
    const std::lock_guard lock(mutex_);
    const auto is_done = [](const HostStream* each) { return each->done == each->queued; };
    if (!std::all_of(streams_.begin(), streams_.end(), is_done)) return "other work is underway";
    held_ = at(stream);
    return nullptr;
  }
  Error let_go(Stream stream, bool* in_time) override {
    const std::lock_guard lock(mutex_);
    if (held_ != at(stream)) return "nothing is held back on the stream";
    held_ = nullptr;
    *in_time = true;
    changed_.notify_all();
    return nullptr;
  }

  Error begin_capture(Stream stream) override {
    if (const Error error = refuse_in_capture(stream)) return error;
    if (const Error error = refuse_while_held()) return error;
    const std::lock_guard lock(mutex_);
    at(stream)->is_capturing = true;
    at(stream)->capture_failure = nullptr;
    capturing_[std::this_thread::get_id()] = at(stream);
    return nullptr;
  }
  Error end_capture(Stream stream, WorkGraph* graph, Instantiation* how) override {
    const std::lock_guard lock(mutex_);
    HostStream& host = *at(stream);
    const auto own = capturing_.find(std::this_thread::get_id());
    if (own == capturing_.end() || own->second != &host)
      return "this thread does not capture what is queued on the stream";
    capturing_.erase(own);
    host.is_capturing = false;
    const auto operations = std::make_shared<const Operations>(std::exchange(host.captured, {}));
    if (host.capture_failure != nullptr) {
      delete at(*graph);
      *graph = nullptr;
      return host.capture_failure;
    }
    // As CUDA does: kernels and their arguments may change, the number and kinds of the nodes may
    // not.
    const bool is_changed = *graph != nullptr && are_alike(*at(*graph)->operations, *operations);
    *how = is_changed ? Instantiation::kUpdated : Instantiation::kNew;
    if (!is_changed) {
      delete at(*graph);
      *graph = reinterpret_cast<WorkGraph>(new HostGraph);
    }
    at(*graph)->operations = operations;
    return nullptr;
  }
  Error launch_graph(Stream stream, WorkGraph graph) override {
    if (const Error error = refuse_in_capture(stream)) return error;
    Operation operation;
    operation.kind = Operation::Kind::kGraph;
    operation.graph = at(graph)->operations;
    return add(stream, std::move(operation));
  }
  Error destroy_graph(WorkGraph graph) override {
    delete at(graph);
    return nullptr;
  }

 private:
  static HostStream* at(Stream stream) { return reinterpret_cast<HostStream*>(stream); }
  static HostEvent* at(Event event) { return reinterpret_cast<HostEvent*>(event); }
  static HostGraph* at(WorkGraph graph) { return reinterpret_cast<HostGraph*>(graph); }

  static bool are_alike(const Operations& a, const Operations& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Operation& x, const Operation& y) { return x.kind == y.kind; });
  }

  // Why a call fails that may not be made while the thread, or anyone on the stream, captures; else
  // null.
  Error refuse_in_capture(Stream stream = nullptr) {
    const std::lock_guard lock(mutex_);
    const auto own = capturing_.find(std::this_thread::get_id());
    HostStream* host = own != capturing_.end()                         ? own->second
                       : stream != nullptr && at(stream)->is_capturing ? at(stream)
                                                                       : nullptr;
    if (host == nullptr) return nullptr;
    return host->capture_failure = "not permitted while a stream captures";
  }

  // Of calls that may wait for what is held back.
  Error refuse_while_held() {
    const std::lock_guard lock(mutex_);
    return held_ == nullptr ? nullptr : "not permitted while work is held back";
  }

  Error add(Stream stream, Operation operation) {
    const std::lock_guard lock(mutex_);
    push(stream, std::move(operation));
    return nullptr;
  }
  void push(Stream stream, Operation operation) {
    if (at(stream)->is_capturing) {
      at(stream)->captured.push_back(std::move(operation));
      return;
    }
    at(stream)->waiting.push_back(std::move(operation));
    ++at(stream)->queued;
    if (kind_ == Emulation::kConcurrent) changed_.notify_all();
  }

  // Returns once the operations before the point are done.
  void finish(std::unique_lock<std::mutex>& lock, const Point& point) {
    if (kind_ == Emulation::kLazy) {
      if (point.stream->done >= point.operations) return;
      const EmulatedMemory::Work work(memory_);
      return run_until(point);
    }
    changed_.wait(lock, [&] { return point.stream->done >= point.operations; });
  }

  // Lazy: depth first, a wait runs what it waits for. Recorded points lie in the past, so this
  // ends.
  static void run_until(const Point& point) {
    HostStream& stream = *point.stream;
    while (stream.done < point.operations) {
      Operation operation = std::move(stream.waiting.front());
      stream.waiting.pop_front();
      if (operation.kind == Operation::Kind::kWait) run_until(operation.point);
      execute(operation);
      ++stream.done;
    }
  }

  // Concurrent: the thread of a stream.
  void work(HostStream& stream) {
    const auto can_run = [&](const Operation& next) {
      if (held_ == &stream) return false;
      return next.kind != Operation::Kind::kWait || next.point.stream->done >= next.point.operations;
    };
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(
          lock, [&] { return stream.waiting.empty() ? stream.is_ending : can_run(stream.waiting.front()); });
      if (stream.waiting.empty()) return;
      Operation operation = std::move(stream.waiting.front());
      stream.waiting.pop_front();
      lock.unlock();
      {
        const EmulatedMemory::Work working(memory_);
        execute(operation);
      }
      operation = {};  // what another library's work holds goes while the device is not locked
      lock.lock();
      ++stream.done;
      changed_.notify_all();
    }
  }

  Emulation kind_;
  EmulatedMemory memory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<const HostStream*> streams_;
  const HostStream* held_ = nullptr;  // whose work waits for the host
  std::map<std::thread::id, HostStream*> capturing_;
};

}  // namespace

std::unique_ptr<DeviceApi> make_emulated_device(Emulation kind, HostAccess access) {
  return std::make_unique<EmulatedDevice>(kind, access);
}

}  // namespace epweave::replay::device
