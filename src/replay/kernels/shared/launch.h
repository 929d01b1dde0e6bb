// How a task (tasks/tasks.h) is made of tensors, and put into a device's queue.
#pragma once

#include <span>

#include "replay/kernels/host/elements.h"
#include "replay/kernels/shared/queue.h"
#include "replay/kernels/tasks/task_list.h"

namespace epweave::replay::shared {

using math::Compute;
using math::ElementOp;
using math::Stored;

// How elements of a dtype lie in memory. Throws KernelError for dtypes that no kernel computes
// with.
Stored stored_of(DType dtype);
tasks::Number number_of(const Value& value);

tasks::Shape shape_of(std::span<const std::int64_t> sizes);
// The tensor broadcast to `sizes` (aligned at the last dimension).
tasks::Strided strided(const Tensor& tensor, std::span<const std::int64_t> sizes);
// The same of a tensor whose elements are only moved: its own strides, of any dtype.
tasks::Strided plain_strides(const Tensor& tensor);
// Throws KernelError for elements that no task moves.
int bytes_of_element(const Tensor& tensor);

// Bytes between the fields become 0, so that equal tasks have equal bytes
// (device/graph_recorder.h). Where the compiler cannot do that, equal tasks may be taken for
// different ones, never different ones for equal. In a task no padding stands behind an array of
// structs: GCC 12 clears other bytes instead.
template <class Task>
void clear_padding([[maybe_unused]] Task& task) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&task);
#endif
}

template <class Task>
void launch(Queue& queue, const Task& task, std::int64_t count,
            std::initializer_list<const Tensor*> tensors) {
  Task sent = task;
  clear_padding(sent);
  queue.launch({tasks::kind_of<Task>, &sent, count, tensors});
}

// What a fault says, as an op's refusal.
std::string describe_fault(const tasks::Fault& fault);

}  // namespace epweave::replay::shared
