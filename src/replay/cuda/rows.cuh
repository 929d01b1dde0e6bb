// The kernels that do whole rows: a file of their own, compiled beside the others.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "replay/kernels/tasks/task_list.h"

namespace epweave::replay::device {

using namespace tasks;

// Launches a kernel of EPWEAVE_DEVICE_ROW_TASKS for `blocks` blocks. cudaErrorInvalidValue: a
// kind that is not of these.
cudaError_t launch_row_task(cudaStream_t stream, TaskKind kind, const void* task, std::int64_t blocks);

}  // namespace epweave::replay::device
