// Views of what is divided, wanted whole: where they are not contiguous the value that they show is
// joined, not they themselves.
//
//   %k = transpose(%x: [u, 16, 192], 0, 1): [16, u, 192]{192, 3072, 1}
//   joined here     cat([%k_chunk0, %k_chunk1], 1): [16, u, 192], contiguous: not the strides that %k has
//   joined above    %k = transpose(cat([%x_chunk0, %x_chunk1], 0), 0, 1)
//
// Followed upwards are views that show every element once, as far as the first contiguous value.
// The parts of a view that is joined above are dropped where nothing else takes them.
#pragma once

#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"
#include "placement/placement.h"

namespace epweave {

class ViewJoins {
 public:
  ViewJoins(const Graph& graph, const Placements& placements, Facts& facts)
      : graph_(graph), placements_(placements), facts_(facts) {}

  // Whether the whole of a region's divided value is this view of the whole of what it shows.
  bool is_joined_above(NodeId id);
  // The values of which that was said.
  const std::vector<NodeId>& joined_above() const { return joined_above_; }

 private:
  // What it shows in another shape; none: it is no such view, or of a value without parts in the
  // region.
  NodeId shown_by(NodeId id) const;
  bool is_contiguous(NodeId id);

  const Graph& graph_;
  const Placements& placements_;
  Facts& facts_;
  std::vector<NodeId> joined_above_;
};

// How often each node is taken by nodes of the step's order.
using UseCounts = SideTable<NodeId, std::uint32_t>;

// Removes those of the candidates from the step's order that nothing takes, and what only they
// took: nodes from `first_new` on, and numbers.
void drop_unused(Graph& chunked, NodeId first_new, std::vector<NodeId> candidates, UseCounts uses);

}  // namespace epweave
