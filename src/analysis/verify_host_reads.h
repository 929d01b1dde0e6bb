// An invariant of a graph that needs the analysis of storage; beside those of analysis/verify.h.
//
//   host-reads        the host reads what a non-blocking copy from the device writes only behind
//                     something that made the host wait (analysis/host_copy.h)
#pragma once

#include <vector>

#include "analysis/verify.h"
#include "ir/graph.h"

namespace epweave {

// The structure of the graph is sound.
void verify_host_reads(const Graph& graph, std::vector<Violation>& out);

// Every invariant, host-reads among them; only structure if that is broken.
std::vector<Violation> verify_all(const Graph& graph);

}  // namespace epweave
