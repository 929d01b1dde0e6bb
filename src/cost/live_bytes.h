// Device memory along an order of a step.
//
//   inputs       live throughout, as do constants; what the step returns stays to the end
//   a storage    begins with the node that makes it and ends behind the last node of the order that touches any
//                view of it
//   collectives  hold their operands until their wait (Cluster::hold_inputs), so where a wait
//                stands decides memory
//   a node's results are there before its operands go
//
// No rounding, no workspace of kernels, no fragmentation. The host's tensors do not count, but in a
// step that was traced on the CPU, where they stand for the device's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/step_model.h"

namespace epweave {

// Memory of a prefix of an order, a node at a time. Only `LiveBytes(model)` allocates.
class LiveBytes {
 public:
  explicit LiveBytes(const StepModel& model);
  void clear();  // back to the empty prefix

  // What placing the node next would do.
  struct Change {
    std::int64_t made = 0;   // bytes that it makes
    std::int64_t freed = 0;  // bytes that nothing behind it touches
  };
  Change change(Place place) const;

  // Places the node next.
  void place(Place place);

  std::int64_t live() const { return live_; }  // behind the prefix, inputs included
  std::int64_t peak() const { return peak_; }  // within it
  Place peak_at() const {
    return peak_at_;
  }  // the first node that runs at the peak; kNoPlace: none is placed

 private:
  const StepModel& model_;
  std::vector<std::uint32_t> left_;
  std::int64_t live_ = 0, peak_ = 0;
  Place peak_at_ = kNoPlace;
};

struct PeakMemory {
  std::int64_t bytes = 0;  // with the inputs
  Place at = kNoPlace;
};
PeakMemory find_peak(const StepModel& model, std::span<const Place> order);

// No order has a lower peak: while a node runs, the inputs live, and all that it makes and touches.
std::int64_t bound_peak(const StepModel& model);

}  // namespace epweave
