#include "passes/hoist_elements.h"

#include "analysis/element_call.h"
#include "passes/order_list.h"

namespace epweave {

void hoist_elements(const Context& context, Body& body) {
  OrderList list(body.order);
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id) {
    if (const NodeId tuple = tuple_of(context, body.nodes[*id])) list.put_behind(tuple, *id);
  }
  body.order = list.list();
}

}  // namespace epweave
