// Which nodes of a rewritten graph stand for which nodes of its original, by provenance.
#pragma once

#include <vector>

#include "compare/lineage.h"
#include "ir/graph.h"

namespace epweave {

class PairedNodes {
 public:
  PairedNodes(const Graph& a, const Graph& b);

  // All of A's value: the node itself, or the join of its parts.
  NodeId whole(NodeId a) const { return whole_[a]; }
  bool is_kept(NodeId a) const { return kept_[a]; }
  // Parts computed as such; each of them, or none.
  const std::vector<NodeId>& parts(NodeId a) const { return parts_[a]; }
  // Computed as a part, or cut from the whole.
  NodeId part(NodeId a, std::uint32_t part) const;
  // Everything that computes a's value: the whole node, or the parts.
  std::vector<NodeId> computed(NodeId a) const;

  const std::vector<NodeId>& divided() const { return divided_; }  // nodes of A with parts

 private:
  IdVector<NodeId, NodeId> whole_;
  IdVector<NodeId, bool> kept_;
  IdVector<NodeId, std::vector<NodeId>> parts_, pieces_;
  std::vector<NodeId> divided_;
};

}  // namespace epweave
