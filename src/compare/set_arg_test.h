// A node with another argument. For tests.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph.h"

namespace epweave {

inline void set_arg(Graph& graph, Node& node, std::size_t position, Arg value) {
  const auto present = graph.context->args[node.args];
  std::vector<Arg> args(present.begin(), present.end());
  args.at(position) = value;
  node.args = graph.context->args.add(args);
}
inline void set_arg(Graph& graph, NodeId id, std::size_t position, Arg value) {
  set_arg(graph, graph.step().nodes[id], position, value);
}

}  // namespace epweave
