// A step while its collectives are merged: nodes come and go, and values change places.
//
// A value that was replaced is another one wherever it is taken; arguments are rewritten once, at
// the end (finish).
#pragma once

#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/users.h"
#include "ir/facts.h"
#include "ir/graph.h"
#include "ops/type_memo.h"
#include "passes/bucket/node_order.h"

namespace epweave {

class MergedGraph {
 public:
  // The lists are of the step as it is given, and outlive this.
  MergedGraph(Graph& graph, const NodeLists& inputs, const NodeLists& users);

  Graph& graph() { return graph_; }
  Body& body() { return graph_.step(); }
  NodeOrder& order() { return order_; }

  // Appends to the node table; the caller puts the node into the order.
  NodeId add(Node node);
  void remove(NodeId id) { order_.remove(id); }
  void replace(NodeId value, NodeId by);
  NodeId current(NodeId value) const { return replaced_[value] ? replaced_[value] : value; }

  // Calls visit(NodeId) for what a node takes now, in the order of its arguments. Stops where it
  // returns false.
  template <class Visit>
  void visit_inputs(NodeId id, const Visit& visit) const {
    for (NodeId input : inputs_of(id))
      if (!visit(current(input))) return;
  }

  // What took a value of the step as it was given, or takes it now; some may be gone.
  std::vector<NodeId> list_users(NodeId value) const;

  // Nodes from `first` to `last` that take what comes behind them are put behind it: sort_stably
  // (analysis/order.h), of a stretch of the order.
  void sort(NodeId first, NodeId last);

  // Nodes that sort() put elsewhere.
  const std::vector<NodeId>& moved() const { return moved_; }

  // The step with all arguments and the order as they are now.
  void redirect();
  // Another order of what is in it.
  void reorder(std::span<const NodeId> order) { order_ = NodeOrder(order); }

  // The same, and types of what shows a replaced
  // value: it may lie elsewhere in memory.
  void finish(Facts& facts, TypeMemo& types);

 private:
  std::span<const NodeId> inputs_of(NodeId id) const {
    return id.index() < first_new_ ? inputs_[id]
                                   : std::span<const NodeId>(new_inputs_[id.index() - first_new_]);
  }

  void keep_order(std::span<const std::pair<NodeId, bool>> sorted);
  TypeId infer(const Node& node, TypeMemo& types);

  Graph& graph_;
  const NodeLists& inputs_;
  const NodeLists& users_;
  std::size_t first_new_;
  std::vector<std::vector<NodeId>> new_inputs_;
  std::unordered_map<NodeId, std::vector<NodeId>> new_users_;
  NodeOrder order_;
  SideTable<NodeId, NodeId> replaced_;
  IdSet<NodeId> retyped_;  // or a value in place of one of another type
  std::vector<NodeId> moved_;
  IdSet<NodeId> unplaced_;  // while sorting: of the stretch, not placed yet
};

}  // namespace epweave
