// A simulated step as a trace for ui.perfetto.dev (Trace Event Format, JSON), in microseconds of
// the simulation: a track for the compute stream and one for each process group, live bytes of the
// device as a counter, and the critical path as arrows from each slice to the one that could start
// because it ended.
#pragma once

#include <string>
#include <vector>

#include "cost/simulate.h"
#include "ir/graph.h"

namespace epweave::cli {

// Of the simulator's last run, which was of `order`. One event per line.
std::string clock_trace_text(const Graph& graph, const std::string& name, const StepModel& model,
                             std::span<const Place> order, const Simulator& simulator,
                             const std::vector<std::string>& assumptions);

}  // namespace epweave::cli
