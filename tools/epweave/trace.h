// The issue order of a graph as a trace for ui.perfetto.dev and chrome://tracing (Trace Event
// Format, JSON).
//
// One process per graph, one track per stream: "host" (launches, waits, host reads), "compute"
// (kernels), and one per process group. Time is the place in the order, one microsecond each: the
// trace shows what is issued when, not how long it takes. An exchange's bar goes from its launch,
// or where its group is done with the one before, to where it is waited for, or where one behind it
// on its group is.
#pragma once

#include <string>

#include "ir/graph.h"

namespace epweave::cli {

struct TracedGraph {
  std::string name;  // of the process
  const Graph* graph;
};

// One event per line.
std::string trace_text(const std::vector<TracedGraph>& graphs);

}  // namespace epweave::cli
