// An order of nodes that nodes are inserted into and moved within, each in constant time.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace epweave {

class OrderList {
 public:
  explicit OrderList(const std::vector<NodeId>& order) {
    NodeId last;
    for (NodeId id : order) {
      link(last, id);
      last = id;
    }
    link(last, NodeId());
  }

  NodeId first() const { return first_; }
  NodeId next(NodeId id) const { return next_[id]; }

  // The node is new, or moves from where it is.
  void put_behind(NodeId anchor, NodeId id) {
    if (anchor == id) return;
    unlink(id);
    const NodeId follower = next_[anchor];
    link(anchor, id);
    link(id, follower);
  }
  void put_before(NodeId anchor, NodeId id) {
    if (anchor == id) return;
    unlink(id);
    const NodeId before = previous_[anchor];
    link(before, id);
    link(id, anchor);
  }

  std::vector<NodeId> list() const {
    std::vector<NodeId> order;
    for (NodeId id = first_; id; id = next_[id]) order.push_back(id);
    return order;
  }

 private:
  void link(NodeId before, NodeId after) {
    if (before) {
      next_.at(before) = after;
    } else {
      first_ = after;
    }
    if (after) previous_.at(after) = before;
  }
  void unlink(NodeId id) {
    if (id != first_ && !previous_[id]) return;  // new
    link(previous_[id], next_[id]);
    next_.at(id) = previous_.at(id) = NodeId();
  }

  NodeId first_;
  SideTable<NodeId, NodeId> next_, previous_;
};

}  // namespace epweave
