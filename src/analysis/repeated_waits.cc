#include "analysis/repeated_waits.h"

#include "analysis/collectives.h"
#include "ops/bind.h"

namespace epweave {

NodeId RepeatedWaits::find(NodeId id, const IdVector<NodeId, NodeId>& number) {
  const Arg self = is_wait(body_.nodes[id]) ? arg_of(context_, body_.nodes[id], 0) : Arg::none();
  if (!self.is_node()) return {};
  NodeId& first = first_.at(effects_.storage_of(self.as_node()));
  if (first) {
    const NodeId waited = number[self.as_node()], launch = arg_of(context_, body_.nodes[first], 0).as_node();
    if (waited == number[launch] || waited == number[first]) return first;
  }
  first = id;
  return {};
}

}  // namespace epweave
