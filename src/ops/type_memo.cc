#include "ops/type_memo.h"

#include "ir/call_words.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {

TypeId TypeMemo::infer(const Graph& graph, const Body& body, const Node& node) {
  if (!has_type_rule(node)) return {};
  if (!push_key(*graph.context, body, node)) {
    keys_.discard();
    return infer_type(facts_, graph, body, node);
  }
  const auto [number, is_new] = keys_.intern();
  if (is_new) types_.emplace_back();
  if (!types_[number]) types_[number] = infer_type(facts_, graph, body, node);
  return types_[number];
}

// Not where the node gives its result a name of its own, and not where a value has no type or
// stands for a nested graph: there rules look further.
bool TypeMemo::push_key(const Context& context, const Body& body, const Node& node) {
  if (node.extra != nullptr && !node.extra->bindings.empty()) return false;
  bool is_typed = true;
  const auto of_node = [&](NodeId input) {
    const Node& value = body.nodes[input];
    is_typed &= value.type.valid() && !value.attr.is(ArgKind::kGraph);
    keys_.push(tagged_word(ArgKind::kNode, value.type.index()));
  };
  push_call_words(keys_, context.args, node.op->index, node, of_node);
  return is_typed;
}

}  // namespace epweave
