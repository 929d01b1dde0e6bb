// Who uses whom: for each node of a body the nodes it takes values from, and the nodes that
// take its value, as flat lists.
//
//   a = mm(x, w);  b = add(a, a)      inputs_of(b) = {a}        users_of(a) = {b}
//
// A node is listed once however often it is named. Inputs are in the order of the arguments
// (positional, then keyword), users in execution order. Nodes that do not execute have
// neither inputs nor users.
#pragma once

#include <span>

#include "ir/graph.h"

namespace epweave {

// Lists of nodes, one per node, in one array.
class NodeLists {
 public:
  std::span<const NodeId> operator[](NodeId id) const {
    if (id.index() + 1 >= begins_.size()) return {};
    return {items_.data() + begins_[id.index()], begins_[id.index() + 1] - begins_[id.index()]};
  }
  std::size_t total() const { return items_.size(); }

 private:
  friend class InputLister;
  friend NodeLists invert(const NodeLists& lists, std::span<const NodeId> order);
  friend NodeLists list_pairs(std::size_t node_count, std::span<const std::pair<NodeId, NodeId>> pairs);

  std::vector<std::uint32_t> begins_;  // one per node of the table, and the end
  std::vector<NodeId> items_;
};

NodeLists list_inputs(const Context& context, const Body& body);

// The same for a walk that serves other analyses, too: add each node that executes, in order.
class InputLister {
 public:
  InputLister(const Context& context, const Body& body);
  void add(NodeId id, const Node& node);
  NodeLists take();

 private:
  const Context& context_;
  const Body& body_;
  std::vector<NodeId> flat_;  // inputs of order[0], of order[1], ...
  NodeLists lists_;
  IdVector<NodeId, NodeId> last_user_;
};

// For each node the nodes whose list names it, in the given order.
NodeLists invert(const NodeLists& lists, std::span<const NodeId> order);

// For each node the second members of the pairs it is first in, in the order of the pairs.
NodeLists list_pairs(std::size_t node_count, std::span<const std::pair<NodeId, NodeId>> pairs);

inline NodeLists list_users(const Context& context, const Body& body) {
  return invert(list_inputs(context, body), body.order);
}

// The place of each node in an order; kNotExecuted for the others.
inline constexpr std::uint32_t kNotExecuted = ~0U;
IdVector<NodeId, std::uint32_t> find_positions(const Body& body, std::span<const NodeId> order);

}  // namespace epweave
