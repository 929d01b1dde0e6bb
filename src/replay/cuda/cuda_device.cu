// The CUDA device (device/device_api.h): the runtime's calls, and a kernel per task. Built into a
// shared object of its own that is loaded when asked for, so that programs run without CUDA.
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>

#include "device_build.h"
#include "replay/cuda/fused_attention.cuh"
#include "replay/cuda/pinned_copies.cuh"
#include "replay/cuda/products.cuh"
#include "replay/cuda/rows.cuh"
#include "replay/kernels/device/device_api.h"

namespace epweave::replay::device {
namespace {

constexpr int kThreads = 256;

template <class Task>
__global__ void run_task(const Task task, const std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride)
    task.run(i);
}

// How long work is held back at most: where the host waits for it after all, it goes on.
constexpr std::chrono::milliseconds kLongestHold{50};

__device__ std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Ends once the host has let go hold number `number`. `let_go` is in the host's memory.
__global__ void wait_for_host(const volatile std::uint64_t* let_go, std::uint64_t number,
                              std::uint64_t longest) {
  const std::uint64_t start = nanoseconds();
  while (*let_go < number && nanoseconds() - start < longest) __nanosleep(200);
}

Error text_of(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class Task>
Error launch_task(cudaStream_t stream, const void* bytes, std::int64_t count) {
  Task task;
  std::memcpy(static_cast<void*>(&task), bytes, sizeof task);
  constexpr std::int64_t kMostBlocks = 1 << 20;  // beyond that a thread takes several indices
  const std::int64_t blocks = (count + kThreads - 1) / kThreads;
  run_task<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0, stream>>>(
      task, count);
  return text_of(cudaGetLastError());
}

cudaStream_t cuda(Stream stream) {
  return reinterpret_cast<cudaStream_t>(stream);
}
cudaEvent_t cuda(Event event) {
  return reinterpret_cast<cudaEvent_t>(event);
}
cudaGraphExec_t cuda(WorkGraph graph) {
  return reinterpret_cast<cudaGraphExec_t>(graph);
}

class CudaDevice : public DeviceApi {
 public:
  explicit CudaDevice(int ordinal) : ordinal_(ordinal) {}
  // A device that is lost frees nothing until the process ends; the process that looks for the
  // kernel needs the memory.
  ~CudaDevice() override {
    std::size_t free = 0, total = 0;
    if (enter() != nullptr || cudaMemGetInfo(&free, &total) != cudaSuccess) {
      cudaDeviceReset();
      return;
    }
    copies_.release();
    if (let_go_ != nullptr) cudaFreeHost(let_go_);
  }

  Error find_facts(DeviceFacts& facts) override {
    facts = {};
    cudaDeviceProp properties;
    if (const Error error = text_of(cudaGetDeviceProperties(&properties, ordinal_))) return error;
    std::snprintf(facts.name, sizeof facts.name, "%s", properties.name);
    facts.multiprocessors = properties.multiProcessorCount;
    facts.major = properties.major;
    facts.minor = properties.minor;
    facts.memory = properties.totalGlobalMem;
    if (const Error error = enter()) return error;
    std::size_t total = 0;
    if (const Error error = text_of(cudaMemGetInfo(&facts.free, &total))) return error;
    if (const Error error = text_of(cudaDriverGetVersion(&facts.driver))) return error;
    return text_of(cudaRuntimeGetVersion(&facts.runtime));
  }
  Error enter() override {
    static thread_local int current = -1;
    if (current == ordinal_) return nullptr;
    const Error error = text_of(cudaSetDevice(ordinal_));
    if (error == nullptr) current = ordinal_;
    return error;
  }
  Error allocate(std::size_t bytes, void** data) override {
    if (const Error error = enter()) return error;
    const cudaError_t error = cudaMalloc(data, bytes);
    if (error == cudaErrorMemoryAllocation) cudaGetLastError();  // the caller frees memory and tries again
    return text_of(error);
  }
  Error release(void* data) override {
    if (const Error error = enter()) return error;
    return text_of(cudaFree(data));
  }
  Error make_stream(Priority priority, Stream* stream) override {
    if (const Error error = enter()) return error;
    int least = 0, greatest = 0;  // lower numbers go first
    if (const Error error = text_of(cudaDeviceGetStreamPriorityRange(&least, &greatest))) return error;
    cudaStream_t made = nullptr;
    const Error error = text_of(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking,
                                                             priority == Priority::kHigh ? greatest : least));
    *stream = reinterpret_cast<Stream>(made);
    return error;
  }
  Error destroy_stream(Stream stream) override { return text_of(cudaStreamDestroy(cuda(stream))); }
  void* native(Stream stream) override { return stream; }
  Error make_event(Timing timing, Event* event) override {
    if (const Error error = enter()) return error;
    cudaEvent_t made = nullptr;
    const Error error = text_of(cudaEventCreateWithFlags(
        &made, timing == Timing::kTimed ? cudaEventDefault : cudaEventDisableTiming));
    *event = reinterpret_cast<Event>(made);
    return error;
  }
  Error destroy_event(Event event) override { return text_of(cudaEventDestroy(cuda(event))); }
  Error record(Event event, Stream stream) override {
    if (const Error error = enter()) return error;
    return text_of(cudaEventRecord(cuda(event), cuda(stream)));
  }
  Error wait(Stream stream, Event event) override {
    if (const Error error = enter()) return error;
    return text_of(cudaStreamWaitEvent(cuda(stream), cuda(event), 0));
  }
  Error has_passed(Event event, bool* passed) override {
    if (const Error error = enter()) return error;
    const cudaError_t error = cudaEventQuery(cuda(event));
    *passed = error == cudaSuccess;
    if (error != cudaErrorNotReady) return text_of(error);
    cudaGetLastError();  // "not ready" is no error
    return nullptr;
  }
  Error find_seconds(Event from, Event to, double* seconds) override {
    float milliseconds = 0;
    const Error error = text_of(cudaEventElapsedTime(&milliseconds, cuda(from), cuda(to)));
    *seconds = static_cast<double>(milliseconds) / 1000;
    return error;
  }
  void open_range(const char* name) override { nvtxRangePushA(name); }
  void close_range() override { nvtxRangePop(); }
  Error synchronize(Stream stream) override {
    if (const Error error = enter()) return error;
    return text_of(cudaStreamSynchronize(cuda(stream)));
  }
  Error copy_in(Stream stream, void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    if (const Error error = refuse_in_capture(stream)) return error;
    return text_of(copies_.copy_in(cuda(stream), to, from, bytes));
  }
  Error copy_out(Stream stream, void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    if (const Error error = refuse_in_capture(stream)) return error;
    return text_of(copies_.copy_out(cuda(stream), to, from, bytes));
  }
  Error fill(Stream stream, void* data, int byte, std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    if (const Error error = enter()) return error;
    return text_of(cudaMemsetAsync(data, byte, bytes, cuda(stream)));
  }
  Error launch(Stream stream, TaskKind kind, const void* task, std::int64_t count) override {
    if (count == 0) return nullptr;
    if (const Error error = enter()) return error;
    switch (kind) {
#define EPWEAVE_LAUNCH(Name, ...) \
  case TaskKind::k##Name:         \
    return launch_task<__VA_ARGS__>(cuda(stream), task, count);
      EPWEAVE_DEVICE_TASKS(EPWEAVE_LAUNCH)
#undef EPWEAVE_LAUNCH
      default:
        if (is_row_kind(kind)) return text_of(launch_row_task(cuda(stream), kind, task, count));
        if (count > 0x7fffffff) return "too many blocks of threads";
        if (is_warp_kind(kind)) return text_of(launch_warp_task(cuda(stream), kind, task, count));
        return text_of(launch_product(cuda(stream), kind, task, count));
    }
  }
  Error call(Stream stream, const LibraryCall& call) override {
    if (const Error error = enter()) return error;
    return call.run(call.owner, call.argument, stream);
  }

  Error hold(Stream stream) override {
    if (const Error error = enter()) return error;
    if (let_go_ == nullptr) {
      void* made = nullptr;
      if (const Error error = text_of(cudaHostAlloc(&made, sizeof *let_go_, cudaHostAllocMapped)))
        return error;
      let_go_ = static_cast<std::uint64_t*>(made);
      __atomic_store_n(let_go_, 0, __ATOMIC_RELEASE);
    }
    void* seen_by_device = nullptr;
    if (const Error error = text_of(cudaHostGetDevicePointer(&seen_by_device, let_go_, 0))) return error;
    held_since_ = Clock::now();  // the kernel begins later
    wait_for_host<<<1, 1, 0, cuda(stream)>>>(
        static_cast<const std::uint64_t*>(seen_by_device), ++holds_,
        static_cast<std::uint64_t>(std::chrono::nanoseconds(kLongestHold).count()));
    return text_of(cudaGetLastError());
  }
  Error let_go(Stream, bool* in_time) override {
    __atomic_store_n(let_go_, holds_, __ATOMIC_RELEASE);
    *in_time = Clock::now() - held_since_ < kLongestHold;
    return nullptr;
  }

  // What other threads do meanwhile, on other streams, is theirs: they may allocate and wait.
  Error begin_capture(Stream stream) override {
    if (const Error error = enter()) return error;
    const cudaError_t error = cudaStreamBeginCapture(cuda(stream), cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess) cudaGetLastError();  // the caller goes on without a graph
    return text_of(error);
  }
  Error end_capture(Stream stream, WorkGraph* graph, Instantiation* how) override {
    const cudaGraphExec_t before = cuda(*graph);
    *graph = nullptr;
    cudaGraph_t captured = nullptr;
    cudaError_t error = cudaStreamEndCapture(cuda(stream), &captured);
    // Launches of what is about to be changed or destroyed are over.
    if (before != nullptr && error == cudaSuccess) error = cudaStreamSynchronize(cuda(stream));
    if (before != nullptr && error == cudaSuccess) {
      cudaGraphExecUpdateResultInfo result;
      if (cudaGraphExecUpdate(before, captured, &result) == cudaSuccess) {
        *graph = reinterpret_cast<WorkGraph>(before);
        *how = Instantiation::kUpdated;
        return text_of(cudaGraphDestroy(captured));
      }
      cudaGetLastError();  // another shape of graph: a new one
    }
    if (before != nullptr) cudaGraphExecDestroy(before);
    cudaGraphExec_t made = nullptr;
    if (error == cudaSuccess) error = cudaGraphInstantiate(&made, captured, 0);
    if (captured != nullptr) cudaGraphDestroy(captured);
    if (error != cudaSuccess) cudaGetLastError();  // the caller goes on without a graph
    *graph = reinterpret_cast<WorkGraph>(made);
    *how = Instantiation::kNew;
    return text_of(error);
  }
  Error launch_graph(Stream stream, WorkGraph graph) override {
    if (const Error error = enter()) return error;
    return text_of(cudaGraphLaunch(cuda(graph), cuda(stream)));
  }
  Error destroy_graph(WorkGraph graph) override { return text_of(cudaGraphExecDestroy(cuda(graph))); }

 private:
  using Clock = std::chrono::steady_clock;

  // A captured copy would read pinned memory that is another copy's by then. The calling thread
  // uses the device behind this.
  Error refuse_in_capture(Stream stream) {
    if (const Error error = enter()) return error;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (const Error error = text_of(cudaStreamIsCapturing(cuda(stream), &status))) return error;
    return status == cudaStreamCaptureStatusNone ? nullptr : "not permitted while a stream captures";
  }

  int ordinal_;
  PinnedCopies copies_;
  std::uint64_t* let_go_ = nullptr;  // the number of the last hold that the host let go
  std::uint64_t holds_ = 0;
  Clock::time_point held_since_;
};

// Why there is no GPU: what is there of the driver, and what the runtime needs.
void describe_driver(Error error, char* problem, std::size_t problem_bytes) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);  // 0: there is none
  cudaRuntimeGetVersion(&runtime);
  char there[64] = "there is no driver";
  if (driver != 0)
    std::snprintf(there, sizeof there, "the driver is for CUDA %d.%d", driver / 1000, driver % 1000 / 10);
  std::snprintf(problem, problem_bytes, "%s (%s, the CUDA part needs one for CUDA %d.%d%s)", error, there,
                runtime / 1000, runtime % 1000 / 10,
                driver != 0 && driver / 1000 < runtime / 1000
                    ? ": update the driver, or build with an nvcc of the driver's version"
                    : "");
}

}  // namespace
}  // namespace epweave::replay::device

extern "C" __attribute__((visibility("default"))) const char* epweave_device_build() {
  return epweave::replay::device::kDeviceBuild;
}

extern "C" __attribute__((visibility("default"))) epweave::replay::device::DeviceApi* epweave_open_device(
    int version, std::size_t fingerprint, int ordinal, char* problem, std::size_t problem_bytes) {
  using namespace epweave::replay::device;
  const auto refuse = [&](const char* reason) -> DeviceApi* {
    std::snprintf(problem, problem_bytes, "%s", reason);
    return nullptr;
  };
  if (version != kApiVersion || fingerprint != task_fingerprint())
    return refuse("libepweave_cuda.so is of another build than this program");
  int count = 0;
  if (const Error error = text_of(cudaGetDeviceCount(&count))) {
    describe_driver(error, problem, problem_bytes);
    return nullptr;
  }
  if (ordinal >= count) {
    std::snprintf(problem, problem_bytes, "GPU %d is asked for, there are %d", ordinal, count);
    return nullptr;
  }
  cudaDeviceProp properties;
  if (const Error error = text_of(cudaGetDeviceProperties(&properties, ordinal))) return refuse(error);
  if (properties.major != 9 || properties.minor != 0) {
    std::snprintf(problem, problem_bytes,
                  "%s has compute capability %d.%d; the kernels are built for 9.0 (H100, H200)",
                  properties.name, properties.major, properties.minor);
    return nullptr;
  }
  if (const Error error = text_of(cudaSetDevice(ordinal))) return refuse(error);
  return new (std::nothrow) CudaDevice(ordinal);
}
