// How much memory a run takes, before anything is allocated: from recorded types, with the numbers
// that symbols had when the graph was traced. A kernel's scratch memory and what collectives copy
// are not counted.
#pragma once

#include <cstdint>

#include "ir/graph.h"

namespace epweave::replay {

// Of one rank.
struct MemoryNeed {
  std::uint64_t inputs = 0;  // held for the whole run
  std::uint64_t values = 0;  // most that are held at a time; views count once
  std::uint64_t bytes() const { return inputs + values; }
};
MemoryNeed find_memory_need(const Graph& graph);

}  // namespace epweave::replay
