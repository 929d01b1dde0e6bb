// All-to-alls, whatever their labels say that they carry: tokens, or their counts. Those that are
// labelled as exchanges of tokens: analysis/ep_regions.h.
#pragma once

#include "ir/graph.h"

namespace epweave {

bool is_all_to_all(const Node& node);

// Whether the step has one.
bool has_all_to_all(const Graph& graph);

}  // namespace epweave
