#include "analysis/element_call.h"

#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {

NodeId tuple_of(const Context& context, const Node& node) {
  const Arg tuple = has_family(node, OpFamily::kElement) ? arg_of(context, node, 0) : Arg::none();
  return tuple.is_node() ? tuple.as_node() : NodeId();
}

NodeId call_of(const Context& context, const Body& body, NodeId id) {
  while (const NodeId tuple = tuple_of(context, body.nodes[id])) id = tuple;
  return id;
}

}  // namespace epweave
