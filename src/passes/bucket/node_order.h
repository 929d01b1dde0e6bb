// An order of nodes that is edited in place, and asked often which of two nodes comes first.
//
//   order a b c      insert_before(b, {x, y})      a x y b c      precedes(x, b): true
//
// Each node has a number that grows along the order; what is put between two nodes takes numbers
// between theirs. Where no number is left all are given anew, which is seldom: the gaps are wide at
// first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/users.h"
#include "ir/graph.h"

namespace epweave {

class NodeOrder {
 public:
  explicit NodeOrder(std::span<const NodeId> order);

  bool contains(NodeId id) const { return link(id).label != 0; }
  bool precedes(NodeId a, NodeId b) const { return link(a).label < link(b).label; }
  NodeId next(NodeId id) const { return link(id).next; }
  NodeId previous(NodeId id) const { return link(id).previous; }
  NodeId later(NodeId a, NodeId b) const { return precedes(a, b) ? b : a; }

  // The nodes must not be in the order yet.
  void insert_before(NodeId place, std::span<const NodeId> ids) { insert(link(place).previous, place, ids); }
  void insert_after(NodeId place, std::span<const NodeId> ids) { insert(place, link(place).next, ids); }
  void remove(NodeId id);

  std::vector<NodeId> list() const;

 private:
  struct Link {
    NodeId previous, next;
    std::uint64_t label = 0;  // 0: not in the order
  };
  const Link& link(NodeId id) const {
    static constexpr Link kNone;
    return links_.contains(id) ? links_[id] : kNone;
  }
  void insert(NodeId before, NodeId after, std::span<const NodeId> ids);
  void number_anew();

  IdVector<NodeId, Link> links_;
  NodeId first_;
};

}  // namespace epweave
