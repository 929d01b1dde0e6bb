// Where a graph is cut for fewer layers: which nodes go, and what takes the place of values that
// they gave (resize/layer_count.h).
#pragma once

#include <cstdint>
#include <string>

#include "ir/graph.h"

namespace epweave {

struct LayerCut {
  IdSet<NodeId> goes;
  // Of a value that leaves the layers that go: one that stays.
  SideTable<NodeId, NodeId> replacement;
  std::string text;  // "%add_6 for %add_26, %getitem_164 for %add_37"
};

// Of the layers from `kept` on. Throws PassError "resize.layers".
LayerCut find_layer_cut(const Graph& graph, std::int64_t kept);

}  // namespace epweave
