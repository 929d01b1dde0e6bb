// Calls inside which the host waits for a device, or hands it bytes: the work of a stretch
// (replay/steps/stretches.h) stops there.
//
//   aten.index.Tensor(x, [mask])        the mask is read to know how many rows there are
//   aten.index.Tensor(x, [positions])   nothing is waited for
#pragma once

#include <string_view>

#include "ir/graph.h"
#include "replay/run/rank_device.h"

namespace epweave::replay::device {

// Of a call of the step, by what the graph records. Empty: the host goes on at once.
std::string_view find_host_wait(const Graph& graph, const Node& node, Math math);

}  // namespace epweave::replay::device
