// Memory along an order, as PyTorch's overlap scheduler counts it: the device's storages, each from the node that makes
// it to the last node that takes it or a view of it. Inputs and constants live from the start, and inputs end behind their
// last use, too, but for those whose name begins with `primals`. What nothing takes lives to the end, as do outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/step_model.h"
#include "ir/graph.h"

namespace epweave {

class InductorMemory {
 public:
  InductorMemory(const Graph& graph, const StepModel& model);

  void place(Place place);
  std::int64_t live() const { return live_; }  // bytes behind what was placed
  std::int64_t peak() const { return peak_; }  // with what a node makes, in front of what it ends

 private:
  const StepModel& model_;
  std::vector<std::uint32_t> left_;  // by storage: nodes that will take it yet
  std::vector<bool> stays_;          // by storage
  std::vector<bool> is_call_;        // by place
  std::int64_t live_ = 0, peak_ = 0;
};

}  // namespace epweave
