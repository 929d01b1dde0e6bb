// Waits for what was waited for before: they change nothing, and give what the first one gave.
//
//   %l = all_reduce(%x, "sum", "0"); %w = wait_tensor(%l); add_(%w, %y); %v = wait_tensor(%l)     %v repeats %w
#pragma once

#include "analysis/effects.h"
#include "base/id.h"
#include "ir/graph.h"

namespace epweave {

class RepeatedWaits {
 public:
  RepeatedWaits(const Context& context, const Body& body, const Effects& effects)
      : context_(context), body_(body), effects_(effects) {}

  // The wait in front of the node that waited for the same value; none of other nodes. Ask for each
  // node in the order of the body. `number`: of each node in front, the first that is its value.
  NodeId find(NodeId id, const IdVector<NodeId, NodeId>& number);

 private:
  const Context& context_;
  const Body& body_;
  const Effects& effects_;
  SideTable<NodeId, NodeId> first_;  // by storage: the first wait for what it holds
};

}  // namespace epweave
