#include "replay/cuda/rows.cuh"

#include <cstring>

namespace epweave::replay::device {
namespace {

template <class Task>
__global__ void __launch_bounds__(Task::kThreads, Task::kBlocks)
    run_rows(const Task task, const std::int64_t blocks) {
  __shared__ typename Task::Shared shared;
  const std::int64_t steps = task.steps();
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x)
#pragma unroll 1
    for (std::int64_t step = 0; step < steps; ++step) {
      // Opaque: what follows from it would be kept in registers from step to step.
      int thread = static_cast<int>(threadIdx.x);
      asm volatile("" : "+r"(thread));
      task.step(step, block, thread, shared);
      __syncthreads();
    }
}

template <class Task>
cudaError_t launch(cudaStream_t stream, const void* bytes, std::int64_t blocks) {
  Task task;
  std::memcpy(static_cast<void*>(&task), bytes, sizeof task);
  constexpr std::int64_t kMostBlocks = 1 << 20;  // beyond that a block does several
  run_rows<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), Task::kThreads, 0, stream>>>(
      task, blocks);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_row_task(cudaStream_t stream, TaskKind kind, const void* task, std::int64_t blocks) {
  switch (kind) {
#define EPWEAVE_LAUNCH(Name, ...) \
  case TaskKind::k##Name:         \
    return launch<__VA_ARGS__>(stream, task, blocks);
    EPWEAVE_DEVICE_ROW_TASKS(EPWEAVE_LAUNCH)
#undef EPWEAVE_LAUNCH
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace epweave::replay::device
