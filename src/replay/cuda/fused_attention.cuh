// Attention on tensor cores: a file of its own, compiled beside the others.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "replay/kernels/tasks/task_list.h"

namespace epweave::replay::device {

using namespace tasks;

// Launches a kernel of EPWEAVE_DEVICE_WARP_TASKS with `blocks` blocks of threads (1 to 2^31 - 1).
// cudaErrorInvalidValue: a kind that is not of these.
cudaError_t launch_warp_task(cudaStream_t stream, TaskKind kind, const void* task, std::int64_t blocks);

}  // namespace epweave::replay::device
