#include "replay/device/emulated.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#define EPWEAVE_AVX2 __attribute__((target("avx2,fma")))
#define EPWEAVE_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#endif

namespace epweave::replay::device {
namespace {

// ---- kernels: each is compiled for several instruction sets, for the fused multiply-add ----

template <class Task>
[[gnu::always_inline]] inline void run_body(const Task& task, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) task.run(i);
}

[[gnu::always_inline]] inline void run_body(const MatmulTask& task, std::int64_t blocks) {
  MatmulTask::Shared shared;
  std::vector<MatmulTask::Registers> registers(MatmulTask::kThreads);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const MatmulTask::Part part = task.part_of(block);
    if (!task.has_work(part)) continue;
    for (int t = 0; t < MatmulTask::kThreads; ++t)
      task.start(part, t, registers[static_cast<std::size_t>(t)]);
    for (std::int64_t k = part.first; k < part.end; k += MatmulTask::kDepth) {
      if (!task.has_steps(part, k)) continue;
      for (int t = 0; t < MatmulTask::kThreads; ++t) task.load(part, k, t, shared);
      for (int t = 0; t < MatmulTask::kThreads; ++t)
        task.multiply(part, k, t, shared, registers[static_cast<std::size_t>(t)]);
    }
    for (int t = 0; t < MatmulTask::kThreads; ++t)
      task.store(part, t, registers[static_cast<std::size_t>(t)]);
  }
}

template <class Task>
void run_base(const Task& task, std::int64_t count) {
  run_body(task, count);
}
#if defined(__x86_64__)
template <class Task>
EPWEAVE_AVX2 void run_avx2(const Task& task, std::int64_t count) {
  run_body(task, count);
}
template <class Task>
EPWEAVE_AVX512 void run_avx512(const Task& task, std::int64_t count) {
  run_body(task, count);
}
#endif

template <class Task>
void run(const void* bytes, std::int64_t count) {
  Task task;
  std::memcpy(static_cast<void*>(&task), bytes, sizeof task);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return run_avx512(task, count);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return run_avx2(task, count);
#endif
  run_base(task, count);
}

void run_kind(TaskKind kind, const void* task, std::int64_t count) {
  switch (kind) {
#define EPWEAVE_RUN(Name, ...) \
  case TaskKind::k##Name:      \
    return run<__VA_ARGS__>(task, count);
    EPWEAVE_DEVICE_TASKS(EPWEAVE_RUN)
#undef EPWEAVE_RUN
    case TaskKind::kMatmul:
      return run<MatmulTask>(task, count);
  }
}

std::size_t task_bytes(TaskKind kind) {
  switch (kind) {
#define EPWEAVE_SIZE(Name, ...) \
  case TaskKind::k##Name:       \
    return sizeof(__VA_ARGS__);
    EPWEAVE_DEVICE_TASKS(EPWEAVE_SIZE)
#undef EPWEAVE_SIZE
    case TaskKind::kMatmul:
      break;
  }
  return sizeof(MatmulTask);
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

struct Operation {
  enum class Kind { kLaunch, kCopyIn, kFill, kWait, kCall, kStamp } kind = Kind::kLaunch;
  TaskKind task = TaskKind::kCopy;
  std::vector<std::byte> bytes;  // the task, or what is copied in
  std::int64_t count = 0;        // of indices, or of bytes
  void* to = nullptr;            // of kCall: the argument
  int byte = 0;
  Point point;                                // kWait
  void (*run)(void*) = nullptr;               // kCall
  std::shared_ptr<Clock::time_point> passed;  // kStamp
};

class EmulatedDevice;

struct HostStream : EmulatedStream {
  EmulatedDevice* device = nullptr;
  std::deque<Operation> waiting;
  std::uint64_t queued = 0, done = 0;
  bool is_ending = false;
  std::thread worker;  // of a concurrent device
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
      return operation.run(operation.to);
    case Operation::Kind::kStamp:
      *operation.passed = Clock::now();
      return;
    case Operation::Kind::kWait:
      return;
  }
}

class EmulatedDevice : public DeviceApi {
 public:
  explicit EmulatedDevice(Emulation kind) : kind_(kind) {}

  Error find_facts(DeviceFacts& facts) override {
    facts = {};
    std::strcpy(facts.name, "emulated by the CPU");
    return nullptr;
  }
  Error enter() override { return nullptr; }
  Error allocate(std::size_t bytes, void** data) override {
    *data = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    return *data == nullptr ? "out of memory" : nullptr;
  }
  Error release(void* data) override {
    std::free(data);
    return nullptr;
  }
  Error make_stream(Priority, Stream* stream) override {
    auto* made = new HostStream;
    made->enqueue = [](EmulatedStream* to, void (*run)(void*), void* argument) {
      auto* host = static_cast<HostStream*>(to);
      Operation operation;
      operation.kind = Operation::Kind::kCall;
      operation.run = run;
      operation.to = argument;
      host->device->add(reinterpret_cast<Stream>(host), std::move(operation));
    };
    made->device = this;
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
    Operation operation;
    operation.kind = Operation::Kind::kWait;
    const std::lock_guard lock(mutex_);
    operation.point = at(event)->point;
    if (operation.point.stream == nullptr) return nullptr;  // never recorded: complete, as in CUDA
    push(stream, std::move(operation));
    return nullptr;
  }
  Error has_passed(Event event, bool* passed) override {
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
    std::unique_lock lock(mutex_);
    finish(lock, {at(stream), at(stream)->queued});
    return nullptr;
  }
  Error copy_in(Stream stream, void* to, const void* from, std::size_t bytes) override {
    Operation operation;
    operation.kind = Operation::Kind::kCopyIn;
    operation.to = to;
    operation.bytes.assign(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes);
    return add(stream, std::move(operation));
  }
  Error copy_out(Stream stream, void* to, const void* from, std::size_t bytes) override {
    synchronize(stream);
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
    operation.bytes.assign(first, first + task_bytes(kind));
    return add(stream, std::move(operation));
  }

 private:
  static HostStream* at(Stream stream) { return reinterpret_cast<HostStream*>(stream); }
  static HostEvent* at(Event event) { return reinterpret_cast<HostEvent*>(event); }

  Error add(Stream stream, Operation operation) {
    const std::lock_guard lock(mutex_);
    push(stream, std::move(operation));
    return nullptr;
  }
  void push(Stream stream, Operation operation) {
    at(stream)->waiting.push_back(std::move(operation));
    ++at(stream)->queued;
    if (kind_ == Emulation::kConcurrent) changed_.notify_all();
  }

  // Returns once the operations before the point are done.
  void finish(std::unique_lock<std::mutex>& lock, const Point& point) {
    if (kind_ == Emulation::kLazy) return run_until(point);
    changed_.wait(lock, [&] { return point.stream->done >= point.operations; });
  }

  // Lazy: depth first, a wait runs what it waits for. Recorded points lie in the past, so this ends.
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
    const auto can_run = [](const Operation& next) {
      return next.kind != Operation::Kind::kWait || next.point.stream->done >= next.point.operations;
    };
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(
          lock, [&] { return stream.waiting.empty() ? stream.is_ending : can_run(stream.waiting.front()); });
      if (stream.waiting.empty()) return;
      const Operation operation = std::move(stream.waiting.front());
      stream.waiting.pop_front();
      lock.unlock();
      execute(operation);
      lock.lock();
      ++stream.done;
      changed_.notify_all();
    }
  }

  Emulation kind_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace

std::unique_ptr<DeviceApi> make_emulated_device(Emulation kind) {
  return std::make_unique<EmulatedDevice>(kind);
}

}  // namespace epweave::replay::device
