// What each token exchange of a part needs, and the copies that bring its token counts to the host.
//
// The closure of exchange k is everything of the region that must have executed before it is
// launched, without what exchanges before k of the same part need already. It may hold nodes of
// other parts (a buffer that the parts update in turn).
//
//   a0 -> d0 -> w0 -> b0 -> c0 -> cw0      closures of part 0: {a0, d0}, {w0, b0, c0}
//
// Refusals: S-13 to S-16, about the copies.
#pragma once

#include <optional>
#include <vector>

#include "passes/overlap_ep/overlap_ep_region.h"

namespace epweave {

// The first closure of a part around the copies that bring its token counts to the host.
struct CopyParts {
  std::vector<Local> before, copies, behind;  // `behind` without the launch
};

struct PartPlan {
  const EpPart* part = nullptr;
  std::vector<std::vector<Local>> closures;  // by exchange: body nodes in execution order, the launch last
  std::optional<CopyParts> copies;           // if the first exchange needs such copies

  Local launch(std::size_t exchange) const { return closures[exchange].back(); }
};

// The parts in the order in which they take turns: forward 0, 1, ..., backward from the last to 0.
// All have copies or none has.
std::vector<PartPlan> plan_parts(const Graph& graph, const RegionGraph& region_graph, const EpRegion& region);

}  // namespace epweave
