// Which nodes of a step an extraction consists of, and what crosses its border.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/id.h"
#include "extract/extract.h"
#include "ir/graph.h"

namespace epweave {

struct Selection {
  std::vector<std::string> modules;  // that the patterns select
  IdSet<NodeId> inside;              // the nodes of the modules
  IdSet<NodeId> taken;               // inside, or what comes along: computed from no input of the step
  IdSet<NodeId> leaving;             // values that are used outside
  std::vector<NodeId> step_inputs;   // inputs of the step that are read
  std::vector<NodeId> entering;      // values from outside
  // Values from outside that compute again what one of `entering` computes, with it.
  std::vector<std::pair<NodeId, NodeId>> repeated;
  IdSet<StringId> mentioned;           // symbols
  SideTable<StringId, NodeId> binder;  // of a symbol: the node of the step that binds it; or none
};

// Throws PassError as extract() does, but for "extract.cut".
Selection select_nodes(const Graph& graph, const ExtractOptions& options);

}  // namespace epweave
