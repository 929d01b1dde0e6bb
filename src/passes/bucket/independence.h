// Collectives that one launch could do, apart where one needs another's result.
//
//   r0 = all_reduce(x); w0 = wait(r0); r1 = all_reduce(f(w0)); r2 = all_reduce(y)      [r0, r2] [r1]
//
// Each is in the group of the longest chain of such collectives that ends in it, so that there are
// as few groups as possible.
#pragma once

#include <span>
#include <vector>

#include "passes/bucket/mergeable.h"
#include "passes/bucket/merged_graph.h"

namespace epweave {

class Independence {
 public:
  explicit Independence(MergedGraph& graph) : graph_(graph) {}

  // Takes into account what `plan_merge` was told, as if it were merged already. `collectives` in
  // execution order.
  std::vector<std::vector<const Mergeable*>> split(std::span<const Mergeable* const> collectives);

  // These launches are going to be one.
  void plan_merge(std::span<const Mergeable* const> collectives);
  // The planned launches are one now.
  void forget_plans();

 private:
  MergedGraph& graph_;
  std::vector<std::vector<NodeId>> planned_;
  SideTable<NodeId, std::uint32_t> planned_with_;  // 1 + index in planned_
};

}  // namespace epweave
