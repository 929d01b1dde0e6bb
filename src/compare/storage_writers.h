// The last write before each access to storage that is written somewhere.
//
//   add_(buf, x); y = clone(buf)     seen_by(y) = {add_}
#pragma once

#include <span>
#include <vector>

#include "analysis/effects.h"
#include "ir/graph.h"

namespace epweave {

class StorageWriters {
 public:
  StorageWriters(const Context& context, const Body& body);

  std::span<const NodeId> seen_by(NodeId id) const { return {writers_.data() + begins_[id], counts_[id]}; }
  // The last write of the step to the storage of a value, or none.
  NodeId last_to(NodeId value) const { return last_[effects_.storage_of(value)]; }
  const Effects& effects() const { return effects_; }

 private:
  Effects effects_;
  IdVector<NodeId, std::size_t> begins_, counts_;
  std::vector<NodeId> writers_;
  SideTable<NodeId, NodeId> last_;  // by storage
};

}  // namespace epweave
