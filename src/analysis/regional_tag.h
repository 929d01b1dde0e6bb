// The tag by which torch's `regional_inductor` knows what it compiles: entry
// "compile_with_inductor" of meta "custom", a dict: {}, or {"inductor_configs": {option: value,
// ..}}.
//
// Tagged nodes are taken out of the graph into modules that are compiled alone. A function of
// FlexAttention (a get_attr of a nested graph) must go where its call goes: if another call reads
// it, too, the module gets a graph as its input, which Inductor refuses.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace epweave {

class RegionalTag {
 public:
  explicit RegionalTag(const Graph& graph) : key_(graph.intern("compile_with_inductor")) {}

  bool is_on(const Context& context, const Node& node) const { return find(context, node) != nullptr; }
  const Arg* find(const Context& context, const Node& node) const;  // null: no tag
  // Puts the tag on the node, in the place of another. False: it had an equal one.
  bool put(Context& context, Node& node, Arg value) const;

 private:
  StringId key_;
};

// Whether the node is a get_attr of a nested graph.
inline bool names_graph(const Node& node) {
  return node.kind == NodeKind::kGetAttr && node.attr.is(ArgKind::kGraph);
}

// The nodes that name nested graphs for a call, each once. `call` need not be in the body's table.
std::vector<NodeId> list_functions(const Context& context, const Body& body, const Node& call);
// Puts `own` in the place of `function` among the call's arguments.
void replace_function(Context& context, Node& call, NodeId function, NodeId own);

}  // namespace epweave
