// Elementwise launches whose operands lie densely in the last dimension: the kernels of
// tasks/vector_tasks.h, where there is one.
#pragma once

#include <optional>
#include <span>

#include "replay/kernels/tasks/task_list.h"

namespace epweave::replay::device {

using namespace tasks;  // NOLINT: what a device runs

// In the order in which `out`, the first operand, lies in memory: leaves out extents of 1, and
// merges neighbouring dimensions where every operand allows it.
void merge_dimensions(Shape& shape, std::span<Strided* const> operands);

// What a dense kernel is launched with.
template <class Task>
struct DenseLaunch {
  TaskKind kind;
  Task task;
  std::int64_t count;
};
// Of tasks with merged dimensions. None: the task itself is to be launched.
std::optional<DenseLaunch<UnitFillTask>> find_dense(const MapTask<0>& task);
std::optional<DenseLaunch<VectorMap<1>>> find_dense(const MapTask<1>& task);
std::optional<DenseLaunch<VectorMap<2>>> find_dense(const MapTask<2>& task);
std::optional<DenseLaunch<UnitCopy>> find_dense(const CopyTask& task);

}  // namespace epweave::replay::device
