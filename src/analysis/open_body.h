// A body while calls of it are written out: its nodes are placed one by one in a new order, and
// others stand for those that go.
#pragma once

#include <vector>

#include "analysis/users.h"
#include "base/id.h"
#include "ir/facts.h"
#include "ir/graph.h"
#include "ir/types/layout.h"

namespace epweave {

class OpenBody {
 public:
  OpenBody(Graph& graph, Body& body);

  Graph& graph() const { return graph_; }
  Context& context() const { return *graph_.context; }
  const Body& body() const { return body_; }
  Node& node(NodeId id) { return body_.nodes[id]; }
  Facts& facts() { return facts_; }

  // Of the body as it was.
  const std::vector<NodeId>& old_order() const { return old_order_; }
  auto users_of(NodeId id) const { return users_[id]; }
  // The last node of that name.
  NodeId find(StringId name) const { return by_name_[name]; }

  void place(NodeId id);
  bool is_placed(NodeId id) const { return placed_.contains(id); }
  NodeId add(const Node& node);  // placed

  void drop(NodeId id) { gone_.insert(id); }
  bool is_gone(NodeId id) const { return gone_.contains(id); }
  // Whatever reads `value` reads `by`.
  void replace(NodeId value, NodeId by);
  // With what stands for the nodes that it names.
  Arg current(Arg arg) const;
  void redirect(Node& node) const;
  // Gives the body its new order. Nothing may be placed behind that.
  void close();

  const TensorType& tensor(NodeId id) const { return *tensor_of(context(), body_.nodes[id].type); }
  bool has_sizes(NodeId id, const Dims& sizes);

 private:
  Graph& graph_;
  Body& body_;
  Facts facts_;
  const NodeLists users_;
  const std::vector<NodeId> old_order_;
  SideTable<StringId, NodeId> by_name_;
  IdSet<NodeId> gone_, placed_;
  SideTable<NodeId, NodeId> replaced_;
};

}  // namespace epweave
