// Changes a copy of a graph so that it stays one: calls are added with types that the type rules
// give, and a change of a type is carried on to all that depends on it.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

class GraphEditor {
 public:
  explicit GraphEditor(Graph graph) : graph_(std::move(graph)), facts_(graph_) {}

  Graph& graph() { return graph_; }
  Context& context() { return *graph_.context; }
  Body& step() { return graph_.step(); }
  Node& node(NodeId id) { return step().nodes[id]; }
  const TensorType* tensor(NodeId id) { return tensor_of(context(), node(id).type); }
  Graph take() { return std::move(graph_); }

  std::size_t position(NodeId id);
  // The extent when the graph was traced, if that is known.
  std::optional<std::int64_t> hint(ExprId extent) { return facts_.hint(extent); }
  // What the call's result would be; none: its arguments do not fit, or no rule tells.
  TypeId infer(const Node& call);
  NodeId insert_behind(NodeId id, const Node& call);
  // All users but one take another value.
  void replace_uses(NodeId value, NodeId with, NodeId except = {});
  // Gives the node, and what depends on it, the types that follow from its arguments. False: they
  // do not fit.
  bool retype(NodeId id);
  // One more value that the step returns.
  void return_also(NodeId value);
  Arg list(std::span<const Arg> items) { return context().args.add_tree(ArgKind::kList, items); }

 private:
  Graph graph_;
  Facts facts_;
};

// Calls map(Arg) for the i-th leaf of the call's arguments, positional ones first; the others stay.
void change_leaf(Context& context, Node& call, std::size_t i, const std::function<Arg(Arg)>& map);
// All leaves, in that order.
std::vector<Arg> list_leaves(const Context& context, const Node& call);

}  // namespace epweave
