// What a graph asks of the machine: flops, bytes, and messages, per rank and step.
//
//   flops     of matrix products (2 m n k) and attention (2 q k (d_qk + d_v) per head, masks ignored; 2.5 times
//             that backward), as torch.utils.flop_counter counts them; nothing else
//   bytes     read and written by kernels: each operand whole and each result whole; views and waits move none
//   message   of a collective: the larger of what it takes and what it gives, on this rank
//
// Extents are numbers as analysis/extents.h has them. Nested graphs are not counted: they run inside a
// kernel.
#pragma once

#include <string>
#include <vector>

#include "analysis/extents.h"

namespace epweave {

struct CollectiveCost {
  std::string group;  // its name, or of the node that looks it up
  StringId target;
  std::size_t launches = 0;
  std::int64_t bytes = 0;  // of its messages
};

struct ModuleCost {
  std::string module;  // "layers.*.moe": three elements, numbers as *; "" outside all modules
  std::size_t calls = 0;
  std::int64_t flops = 0, bytes = 0;
  std::size_t collectives = 0;
  std::int64_t collective_bytes = 0;
};

struct GraphCost {
  std::int64_t flops = 0, bytes = 0;
  std::vector<CollectiveCost> collectives;  // by group and target, in order of the first launch
  std::vector<ModuleCost> modules;          // in order of their first call
  std::size_t not_counted = 0;              // calls with an extent that has no number
};

GraphCost count_cost(const Graph& graph, Extents& extents);

}  // namespace epweave
