#include "analysis/value_numbers.h"

#include "analysis/looked_up_group.h"
#include "ir/call_words.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/random_draws.h"

namespace epweave {

ValueNumbers::ValueNumbers(const Graph& graph, const Effects& effects) : ValueNumbers(graph, effects, {}) {}

ValueNumbers::ValueNumbers(const Graph& graph, const Effects& effects,
                           const IdVector<NodeId, NodeId>& original)
    : context_(*graph.context), body_(graph.step()), writes_(effects), number_(body_.nodes.size()) {
  for (const auto [id, node] : walk(context_, body_)) {
    const NodeId first = original.contains(id) ? original[id] : NodeId();
    number_[id] = first ? number_[first] : number(id, node);
    writes_.count_writes_of(id);
  }
}

NodeId ValueNumbers::number(NodeId id, const Node& node) {
  static const OpInfo* const alias = find_op("aten.alias.default");
  const bool binds = node.extra && !node.extra->bindings.empty();
  const bool is_graph = node.kind == NodeKind::kGetAttr && node.attr.is(ArgKind::kGraph);
  if (is_graph) {  // a nested graph, which several attributes may name
    keys_.push(tagged_word(ArgKind::kGraph, node.attr.bits()));
    return first_of_key(id);
  }
  if (node.kind != NodeKind::kCall || node.op == nullptr || node.op->writes || draws_random(context_, node) ||
      binds)
    return id;
  if (node.op == alias)
    if (const Arg self = arg_of(context_, node, 0); self.is_node()) return number_[self.as_node()];
  if (const auto group = looked_up_group(context_, body_, node)) {
    keys_.push(tagged_word(ArgKind::kProcessGroup, group->name.index()));
    keys_.push(tagged_word(ArgKind::kInt, group->stride));
    keys_.push(tagged_word(ArgKind::kInt, group->extent));
  } else {
    push_call(node);
  }
  return first_of_key(id);
}

NodeId ValueNumbers::first_of_key(NodeId id) {
  const auto [key, is_new] = keys_.intern();
  if (is_new) first_.push_back(id);
  return first_[key];
}

void ValueNumbers::push_call(const Node& node) {
  const auto of_node = [&](NodeId input) {
    keys_.push(tagged_word(ArgKind::kNode, number_[input].index()));
    // Of most values, nothing.
    if (const std::uint32_t writes = writes_[input]; writes > 0)
      keys_.push(tagged_word(ArgKind::kNode, writes) | kMark);
  };
  keys_.push(tagged_word(ArgKind::kOperator, node.target.index()));
  keys_.push(tagged_word(ArgKind::kTuple, node.args.count));
  push_words(keys_, context_.args, node.args, of_node);
  push_words(keys_, context_.args, node.kwargs, of_node);
}

}  // namespace epweave
