// Writing provenance. A node's last record names every input-graph node that it stands for, the one
// whose place it has first: origins_of (ir/graph.h).
#pragma once

#include "ir/graph.h"

namespace epweave {

// Uses of `gone` are uses of `kept` now.
struct Merge {
  NodeId kept;
  NodeId gone;
};

// Records at `kept` that it stands for all that `gone` stood for, too.
void record_merged(Context& context, Body& body, StringId pass, Merge merge);

// Records that the node's call became a special case of what it was.
void record_specialized(Context& context, Node& node, StringId pass, StringId reason);
void record_specialized(Context& context, Node& node, Provenance record);  // with a region

// Records that the node executes at another place; `record` says pass, reason and region.
void record_moved(Context& context, Node& node, Provenance record);

}  // namespace epweave
