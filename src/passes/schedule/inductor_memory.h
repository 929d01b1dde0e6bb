// Memory along an order, as PyTorch's overlap scheduler counts it: the device's storages, each from
// the node that makes it to the last node that takes it or a view of it.
//
//   g = all_gather(p)   w = wait(g)   v = view(w)      g has a storage, w has another, v shows w's
//
// Its fake tensors say what shows which storage, and of those a wait's result is new, as is that of
// a collective into a buffer: both are counted beside what they were made of. Inputs and constants
// live from the start, and inputs end behind their last use, too, but for those whose name begins
// with `primals`. What nothing takes lives to the end, as do outputs.
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
  std::vector<bool> is_call_;        // by place
  PlaceLists taken_, made_;          // by place: storages of what it takes, each once, and what it makes
  std::vector<std::int64_t> bytes_;  // by storage
  std::vector<std::uint32_t> left_;  // by storage: nodes that will take it yet
  std::vector<bool> stays_;          // by storage
  std::int64_t live_ = 0, peak_ = 0;
};

}  // namespace epweave
