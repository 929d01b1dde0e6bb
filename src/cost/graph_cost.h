// What a graph asks of the machine, per rank and step: the sum of what its calls ask (cost/cost.h),
// by module and by process group.
//
//   layers.0.moe.gate, layers.1.moe.gate, layers.1.moe      one row, "layers.*.moe"
#pragma once

#include <string>
#include <vector>

#include "cost/cost.h"

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
  std::size_t not_counted = 0;              // calls whose cost, or whose message, is not known
};

GraphCost count_cost(const Graph& graph, Extents& extents);

}  // namespace epweave
