// Which inputs a run leaves changed: a step that is run again from the same inputs needs them as
// they were.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace epweave::replay {

// By placeholder of the step, in order: a node writes its memory, or it is a buffer, which is
// copied back from a device.
std::vector<bool> find_written_inputs(const Graph& graph);

}  // namespace epweave::replay
