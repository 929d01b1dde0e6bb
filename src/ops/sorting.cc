#include "ops/sorting.h"

#include <cstdint>

#include "ops/bind.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/op.h"

namespace epweave {

bool sorts_upwards(const Context& context, const Node& sort) {
  const Arg descending = named_arg(context, sort, "descending");
  return descending.is_none() || (descending.is(ArgKind::kBool) && !descending.as_bool());
}

int sorted_dimension(const Context& context, const Node& sort, std::size_t rank) {
  const Arg given = named_arg(context, sort, "dim");
  const std::int64_t dim = given.is_int() ? given.as_int() : -1;
  return static_cast<int>(dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim);
}

bool sorts_whole_rows(const Context& context, const Node& sort, const TensorType& keys) {
  const int along = sorted_dimension(context, sort, keys.rank());
  for (std::size_t i = 0; i < keys.rank(); ++i)
    if (static_cast<int>(i) != along && context.exprs.constant(keys.sizes[i]) != 1) return false;
  return true;
}

NodeId sort_of_order(const Context& context, const Body& body, NodeId value) {
  const Node& node = body.nodes[value];
  if (has_family(node, OpFamily::kSort)) return node.op->returns.size() == 1 ? value : NodeId();
  const auto element = tuple_element(context, body, node);
  const bool is_order =
      element && element->index == 1 && has_family(body.nodes[element->tuple], OpFamily::kSort);
  return is_order ? element->tuple : NodeId();
}

NodeId undone_order(const Context& context, const Body& body, NodeId value) {
  const NodeId sort = sort_of_order(context, body, value);
  if (!sort || !sorts_upwards(context, body.nodes[sort])) return {};
  const Arg keys = arg_of(context, body.nodes[sort], 0);
  return keys.is_node() && sort_of_order(context, body, keys.as_node()) ? keys.as_node() : NodeId();
}

}  // namespace epweave
