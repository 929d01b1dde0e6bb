// How much device memory a step needs at its fullest, from the liveness of storages.
//
//   inputs      parameters, buffers and what the caller passes in live all the time, as do
//               constants
//   results     a storage begins at the call that computes it and ends behind the last use of any view of it;
//               what the step returns stays to the end
//   collectives hold what they were given until something waits for them
//   reshape     is a view where the strides allow one, else a copy
//
// Sizes are rounded up to 512 bytes, as PyTorch's allocator does. Left out: workspace inside
// kernels, fragmentation, communication buffers, optimizer state that the step does not take.
// Extents are numbers as cost/extents.h has them; storages without one are counted as unknown and
// weigh nothing.
#pragma once

#include <string>
#include <vector>

#include "cost/extents.h"

namespace epweave {

struct LiveStorage {
  NodeId node;  // its first value
  std::int64_t bytes = 0;
};

struct DeviceMemory {
  StringId device;
  std::int64_t inputs = 0;  // bytes of inputs and constants
  std::int64_t peak = 0;    // with the inputs
  NodeId at;                // the node that runs at the peak
  std::vector<LiveStorage>
      largest;  // that live at the peak, inputs apart; the largest first, at most kLargest
};
inline constexpr std::size_t kLargest = 10;

struct MemoryEstimate {
  std::vector<DeviceMemory> devices;  // in order of their first storage
  std::size_t unknown = 0;            // storages without a size
};

MemoryEstimate estimate_memory(const Graph& graph, Extents& extents);

}  // namespace epweave
