// Values that only serve to compute coordinates: integers on the host, from a constant by calls of
// one operand each.
//
//   %r = get_attr tensor([0, 1, 2, 3])   %m = view(%r, [2, 2])   %c = coordinate(%m, 0)      %r and %m
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/id.h"
#include "ir/graph.h"

namespace epweave {

class RankConstants {
 public:
  RankConstants(const Graph& graph, const Body& body);

  bool contains(NodeId id) const { return source_[id].valid(); }
  // The elements of a contiguous value, or none.
  std::optional<std::vector<std::int64_t>> elements(NodeId id) const;

 private:
  void add_call(NodeId id, const Node& node);

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  SideTable<NodeId, NodeId> source_;  // the constant that a value is made of
};

}  // namespace epweave
