#include "replay/device/emulated.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
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

struct LazyStream;

// The first `done` operations of a stream.
struct Point {
  LazyStream* stream = nullptr;
  std::uint64_t operations = 0;
};

struct Operation {
  enum class Kind { kLaunch, kCopyIn, kFill, kWait } kind = Kind::kLaunch;
  TaskKind task = TaskKind::kCopy;
  std::vector<std::byte> bytes;  // the task, or what is copied in
  std::int64_t count = 0;        // of indices, or of bytes
  void* to = nullptr;
  int byte = 0;
  Point point;  // kWait
};

struct LazyStream {
  std::deque<Operation> waiting;
  std::uint64_t queued = 0, done = 0;
};

class EmulatedDevice : public DeviceApi {
 public:
  Error find_facts(DeviceFacts& facts) override {
    facts = {};
    std::strcpy(facts.name, "emulated by the CPU");
    return nullptr;
  }
  Error allocate(std::size_t bytes, void** data) override {
    *data = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    return *data == nullptr ? "out of memory" : nullptr;
  }
  Error release(void* data) override {
    std::free(data);
    return nullptr;
  }
  Error make_stream(Stream* stream) override {
    *stream = reinterpret_cast<Stream>(new LazyStream);
    return nullptr;
  }
  Error destroy_stream(Stream stream) override {
    delete at(stream);
    return nullptr;
  }
  Error make_event(Event* event) override {
    *event = reinterpret_cast<Event>(new Point);
    return nullptr;
  }
  Error destroy_event(Event event) override {
    delete reinterpret_cast<Point*>(event);
    return nullptr;
  }
  Error record(Event event, Stream stream) override {
    const std::lock_guard lock(mutex_);
    *reinterpret_cast<Point*>(event) = {at(stream), at(stream)->queued};
    return nullptr;
  }
  Error wait(Stream stream, Event event) override {
    Operation operation;
    operation.kind = Operation::Kind::kWait;
    const std::lock_guard lock(mutex_);
    operation.point = *reinterpret_cast<Point*>(event);
    if (operation.point.stream == nullptr) return nullptr;  // never recorded: complete, as in CUDA
    push(stream, std::move(operation));
    return nullptr;
  }
  Error synchronize(Stream stream) override {
    const std::lock_guard lock(mutex_);
    run_until({at(stream), at(stream)->queued});
    return nullptr;
  }
  Error copy_in(Stream stream, void* to, const void* from, std::size_t bytes) override {
    Operation operation;
    operation.kind = Operation::Kind::kCopyIn;
    operation.to = to;
    operation.bytes.assign(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes);
    const std::lock_guard lock(mutex_);
    push(stream, std::move(operation));
    return nullptr;
  }
  Error copy_out(Stream stream, void* to, const void* from, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    run_until({at(stream), at(stream)->queued});
    if (bytes != 0) std::memcpy(to, from, bytes);
    return nullptr;
  }
  Error fill(Stream stream, void* data, int byte, std::size_t bytes) override {
    Operation operation;
    operation.kind = Operation::Kind::kFill;
    operation.to = data;
    operation.byte = byte;
    operation.count = static_cast<std::int64_t>(bytes);
    const std::lock_guard lock(mutex_);
    push(stream, std::move(operation));
    return nullptr;
  }
  Error launch(Stream stream, TaskKind kind, const void* task, std::int64_t count) override {
    Operation operation;
    operation.task = kind;
    operation.count = count;
    const auto* first = static_cast<const std::byte*>(task);
    operation.bytes.assign(first, first + task_bytes(kind));
    const std::lock_guard lock(mutex_);
    push(stream, std::move(operation));
    return nullptr;
  }

 private:
  static LazyStream* at(Stream stream) { return reinterpret_cast<LazyStream*>(stream); }
  static void push(Stream stream, Operation operation) {
    at(stream)->waiting.push_back(std::move(operation));
    ++at(stream)->queued;
  }

  // Depth first: a wait runs what it waits for. Recorded points lie in the past, so this ends.
  static void run_until(const Point& point) {
    LazyStream& stream = *point.stream;
    while (stream.done < point.operations) {
      Operation operation = std::move(stream.waiting.front());
      stream.waiting.pop_front();
      if (operation.kind == Operation::Kind::kWait) run_until(operation.point);
      execute(operation);
      ++stream.done;
    }
  }
  static void execute(const Operation& operation) {
    switch (operation.kind) {
      case Operation::Kind::kLaunch:
        return run_kind(operation.task, operation.bytes.data(), operation.count);
      case Operation::Kind::kCopyIn:
        if (!operation.bytes.empty())
          std::memcpy(operation.to, operation.bytes.data(), operation.bytes.size());
        return;
      case Operation::Kind::kFill:
        if (operation.count != 0)
          std::memset(operation.to, operation.byte, static_cast<std::size_t>(operation.count));
        return;
      case Operation::Kind::kWait:
        return;
    }
  }

  std::mutex mutex_;
};

}  // namespace

std::unique_ptr<DeviceApi> make_emulated_device() {
  return std::make_unique<EmulatedDevice>();
}

}  // namespace epweave::replay::device
