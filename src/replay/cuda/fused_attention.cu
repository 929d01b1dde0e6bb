#include "replay/cuda/fused_attention.cuh"

#include <cstring>

#include "replay/cuda/warp.cuh"

namespace epweave::replay::device {
namespace {

// Shared memory beyond 48 KiB is given at the launch, to those that have asked for it.
template <class Task>
__global__ void __launch_bounds__(Task::kThreads, Task::kBlocks) run_warps(const Task task) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<typename Task::Shared*>(memory);
  typename Task::Registers registers;
  const int thread = static_cast<int>(threadIdx.x);
  Warp<typename Task::Registers> warp(registers, thread);
  const typename Task::Part part = task.part_of(blockIdx.x);
  task.start(part, thread, shared);
  task.begin(part, warp);
  const int chunks = task.chunks(part);
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const TilePairs pairs = task.pairs(part, chunk);
    if (pairs.kind == TilePairs::Kind::kNone) continue;  // all threads of the block
    task.load(part, chunk, thread, shared);
    __syncthreads();
    task.compute(part, chunk, pairs, warp, shared);
    __syncthreads();
  }
  task.finish(part, warp, shared);
}

template <class Task>
cudaError_t launch(cudaStream_t stream, const void* bytes, std::int64_t blocks) {
  static const cudaError_t asked =
      cudaFuncSetAttribute(run_warps<Task>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(sizeof(typename Task::Shared)));
  if (asked != cudaSuccess) return asked;
  Task task;
  std::memcpy(static_cast<void*>(&task), bytes, sizeof task);
  run_warps<<<static_cast<unsigned>(blocks), Task::kThreads, sizeof(typename Task::Shared), stream>>>(task);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_warp_task(cudaStream_t stream, TaskKind kind, const void* task, std::int64_t blocks) {
  switch (kind) {
#define EPWEAVE_LAUNCH(Name, ...) \
  case TaskKind::k##Name:         \
    return launch<__VA_ARGS__>(stream, task, blocks);
    EPWEAVE_DEVICE_WARP_TASKS(EPWEAVE_LAUNCH)
#undef EPWEAVE_LAUNCH
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace epweave::replay::device
