// The tag by which torch's `regional_inductor` knows what it compiles: entry
// "compile_with_inductor" of meta "custom", a dict: {}, or {"inductor_configs": {option: value,
// ..}}.
//
// Tagged nodes are taken out of the graph into modules that are compiled alone. A function of
// FlexAttention (a get_attr of a nested graph) must go where its call goes: if another call reads
// it, too, the module gets a graph as its input, which Inductor refuses.
#pragma once

#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace epweave {

class RegionalTag {
 public:
  // Of the tags that nodes have by now.
  explicit RegionalTag(const Graph& graph) : key_(graph.context->strings.find(kKey)) {}

  // False where no node has the tag: its key is no text of the graph's context.
  bool may_be_on() const { return key_.valid(); }
  bool is_on(const Context& context, const Node& node) const { return find(context, node, key_) != nullptr; }
  // Puts the tag on the node, in the place of another. False: it had an equal one.
  static bool put(Context& context, Node& node, Arg value);

 private:
  static constexpr std::string_view kKey = "compile_with_inductor";
  static const Arg* find(const Context& context, const Node& node, StringId key);  // null: no tag

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
