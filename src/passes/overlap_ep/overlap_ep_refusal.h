// How overlap-ep declines a graph: PassError "overlap-ep.NAME" about a node.
#pragma once

#include <string>

#include "ir/graph.h"

namespace epweave {

struct Refusal {
  const char* name;
  const char* remedy;
};

// "NODE: PROBLEM". Without a node, about the graph.
[[noreturn]] void decline(const Graph& graph, NodeId node, const Refusal& refusal,
                          const std::string& problem);

// "region layers.1.moe (forward)"
std::string describe_region(const Graph& graph, StringId root, bool backward);

}  // namespace epweave
