#include "passes/hoist_elements.h"

#include "ops/bind.h"
#include "ops/op.h"
#include "passes/order_list.h"

namespace epweave {

void hoist_elements(const Context& context, Body& body) {
  OrderList list(body.order);
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id) {
    const Node& node = body.nodes[*id];
    if (!has_family(node, OpFamily::kElement)) continue;
    const Arg tuple = arg_of(context, node, 0);
    if (tuple.is_node()) list.put_behind(tuple.as_node(), *id);
  }
  body.order = list.list();
}

}  // namespace epweave
