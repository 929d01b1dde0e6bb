// A device's queue of work, as kernels that are written for every device see it.
//
// Storage on a device names its queue (Storage::queue; null in host memory). What is put into a
// queue runs later, in order; its operands may be freed at once, their memory is not given out
// before.
#pragma once

#include <array>
#include <cstddef>

#include "replay/kernels/math/element_op.h"
#include "replay/values/value.h"

namespace epweave::replay {

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

class Queue {
 public:
  virtual ~Queue() = default;
  virtual void map(const MapRequest& request) = 0;
  // out[i] = start + i * step, out of one dimension; integers or doubles.
  virtual void progress(const Tensor& out, const Value& start, const Value& step) = 0;
};

}  // namespace epweave::replay
