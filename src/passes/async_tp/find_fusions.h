// What async-tp fuses, found by what flows where: from a wait through cuts and joins of the ranks'
// blocks, through reshapes that keep the last dimension, to the left factor of a product; and back
// from a reduce-scatter.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/fused_products.h"
#include "base/id.h"
#include "ir/graph.h"

namespace epweave {

// A collective and its products.
struct Fusion {
  FusedNodes nodes;
  NodeId value;  // gather: the whole value. Scatter: what is reduced, before its blocks are put in rows
  std::size_t dim = 0;  // along which the ranks' blocks of the value lie
};

struct GatherFusion : Fusion {
  std::vector<NodeId> moved;  // what the right factors are computed from, behind the launch
  bool shows_rows = false;    // something else reads what is gathered
};

// Of one product.
struct ScatterFusion : Fusion {
  NodeId rows;  // the left factor, with the dimensions of what is scattered; none: reshape the factor
};

struct Fusions {
  std::vector<GatherFusion> gathers;
  std::vector<ScatterFusion> scatters;
  SideTable<NodeId, NodeId> anchor;                    // of what moves: the launch in front of which it moves
  std::vector<std::pair<NodeId, std::string>> missed;  // a collective or product, and why it is not fused
  std::size_t others = 0;                              // gathers and reduce-scatters of other groups
  bool are_looked_up = false;                          // groups of fused calls, in a mesh
};

// The all-gathers and reduce-scatters of `groups`, in the order of the graph.
Fusions find_fusions(const Graph& graph, const std::set<StringId>& groups);

}  // namespace epweave
