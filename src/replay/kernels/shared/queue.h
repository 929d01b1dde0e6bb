// A device's queue of work, as kernels that are written for every device see it.
//
// Storage on a device names its queue (Storage::queue; null in host memory). What is put into a
// queue runs later, in order; its operands may be freed at once, their memory is not given out
// before.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>

#include "replay/kernels/math/element_op.h"
#include "replay/kernels/tasks/fault.h"
#include "replay/values/value.h"

namespace epweave::replay {

namespace tasks {
enum class TaskKind : std::uint16_t;  // task_list.h
}

// out[i] = op(in[0][i], in[1][i], ...), the inputs broadcast to out's sizes, computed in the
// compute type of `compute` (math/elements.h). `number` is the number of the ops that take one.
// kCopy with equal dtypes copies bits.
struct MapRequest {
  math::ElementOp op;
  DType compute;
  const Tensor& out;
  std::array<const Tensor*, 3> in{};
  std::size_t count = 0;  // inputs
  Value number;
};

// task.run(0 .. count - 1), the task being one of tasks/task_list.h. `tensors`: all that it reads
// and writes; null ones count nothing.
struct TaskRequest {
  tasks::TaskKind kind;
  const void* task;
  std::int64_t count;
  std::initializer_list<const Tensor*> tensors;
};

class Queue {
 public:
  virtual ~Queue() = default;
  virtual void launch(const TaskRequest& request) = 0;
  // Where the tasks of a call report values that the op refuses.
  virtual tasks::FaultSink sink() const = 0;
  // The elements in the same strides, in host memory: the host waits for what was put in before.
  virtual Tensor download(const Tensor& tensor) = 0;
  virtual void map(const MapRequest& request) = 0;
  // out[i] = start + i * step, out of one dimension; integers or doubles.
  virtual void progress(const Tensor& out, const Value& start, const Value& step) = 0;
};

}  // namespace epweave::replay
