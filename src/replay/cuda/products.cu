#include "replay/cuda/products.cuh"

#include <cstring>

namespace epweave::replay::device {
namespace {

template <class Task>
__global__ void __launch_bounds__(Task::kThreads, Task::kBlocks) run_blocks(const Task task) {
  __shared__ typename Task::Shared shared;
  typename Task::Registers registers;
  const int thread = static_cast<int>(threadIdx.x);
  // Not in registers, of which the chains need all.
  __shared__ typename Task::Part part;
  __shared__ bool has_work;
  if (thread == 0) {
    part = task.part_of(blockIdx.x);
    has_work = task.has_work(part);
  }
  __syncthreads();
  if (!has_work) return;  // all threads of the block
  task.start(part, thread, shared, registers);
  __syncthreads();
#pragma unroll 1
  for (decltype(Task::chunks(part)) chunk = 0; chunk < Task::chunks(part); ++chunk) {
    if (!task.has_steps(part, chunk)) continue;
    task.template phase<0>(part, chunk, thread, shared, registers);
    __syncthreads();
    if constexpr (Task::kPhases == 2) {
      task.template phase<1>(part, chunk, thread, shared, registers);
      __syncthreads();
    }
  }
  task.store(part, thread, registers);
}

template <class Task>
cudaError_t launch(cudaStream_t stream, const void* bytes, std::int64_t blocks) {
  Task task;
  std::memcpy(static_cast<void*>(&task), bytes, sizeof task);
  run_blocks<<<static_cast<unsigned>(blocks), Task::kThreads, 0, stream>>>(task);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_product(cudaStream_t stream, TaskKind kind, const void* task, std::int64_t blocks) {
  switch (kind) {
#define EPWEAVE_LAUNCH(Name, ...) \
  case TaskKind::k##Name:         \
    return launch<__VA_ARGS__>(stream, task, blocks);
    EPWEAVE_DEVICE_BLOCK_TASKS(EPWEAVE_LAUNCH)
#undef EPWEAVE_LAUNCH
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace epweave::replay::device
