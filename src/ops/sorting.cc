#include "ops/sorting.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "ir/types/dimension.h"
#include "ops/bind.h"
#include "ops/family.h"
#include "ops/named_arg.h"
#include "ops/number_ops.h"
#include "ops/only_index.h"
#include "ops/op.h"

namespace epweave {
namespace {

bool adds(const Context& context, const Node& put) {
  const Arg accumulate = named_arg(context, put, "accumulate");
  return !accumulate.is_none() && accumulate != Arg::boolean(false);
}

// Vectors of as many numbers of rows.
bool have_as_many_rows(const Context& context, Facts& facts, const Body& body,
                       std::initializer_list<NodeId> values) {
  ExprId rows;
  ExprPool& pool = facts.pool();
  // No extent is negative: Max(0, x), as `arange` has it, is x.
  const auto extent = [&](ExprId x) { return pool.max(pool.number(0), x); };
  const auto are_as_many = [&](ExprId x, ExprId y) {
    return facts.equal(extent(x), extent(y)) || facts.assumed_value(pool.sub(x, y)) == 0;
  };
  return std::ranges::all_of(values, [&](NodeId value) {
    const TensorType* type = tensor_of(context, body.nodes[value].type);
    const bool is_vector = type != nullptr && type->rank() == 1 &&
                           (type->dtype == DType::kInt64 || type->dtype == DType::kInt32);
    if (is_vector && !rows) rows = type->sizes[0];
    return is_vector && are_as_many(rows, type->sizes[0]);
  });
}

// A call that writes 0, 1, .. to the places that an order of as many rows names.
std::optional<InverseOrder> written_inverse(const Context& context, Facts& facts, const Body& body,
                                            NodeId value) {
  const Node& node = body.nodes[value];
  const bool is_put = has_family(node, OpFamily::kIndexPut) && !adds(context, node);
  const bool is_scatter = has_family(node, OpFamily::kScatter) && !node.op->find_param("reduce");
  if (!is_put && !is_scatter) return {};
  const Arg order = is_put ? only_index(context, named_arg(context, node, "indices")).index
                           : named_arg(context, node, "index"),
            rows = named_arg(context, node, is_put ? "values" : "src");
  if (!order.is_node() || !rows.is_node()) return {};
  const InverseOrder found{order.as_node(), rows.as_node()};
  const bool undoes = sort_of_order(context, body, found.order) &&
                      counts_from_zero(context, body.nodes[found.rows]) &&
                      have_as_many_rows(context, facts, body, {value, found.order, found.rows});
  return undoes ? std::optional(found) : std::nullopt;
}

}  // namespace

bool sorts_upwards(const Context& context, const Node& sort) {
  const Arg descending = named_arg(context, sort, "descending");
  return descending.is_none() || (descending.is(ArgKind::kBool) && !descending.as_bool());
}

bool keeps_equal_in_order(const Context& context, const Node& sort) {
  return named_arg(context, sort, "stable") == Arg::boolean(true);
}

int sorted_dimension(const Context& context, const Node& sort, std::size_t rank) {
  const Arg given = named_arg(context, sort, "dim");
  const auto dim = find_dimension(given.is_int() ? given.as_int() : -1, rank);
  return dim ? static_cast<int>(*dim) : -1;
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

std::optional<InverseOrder> inverse_order(const Context& context, Facts& facts, const Body& body,
                                          NodeId value) {
  const NodeId sort = sort_of_order(context, body, value);
  if (!sort) return written_inverse(context, facts, body, value);
  const Arg keys = arg_of(context, body.nodes[sort], 0);
  const bool undoes = sorts_upwards(context, body.nodes[sort]) && keys.is_node() &&
                      sort_of_order(context, body, keys.as_node());
  return undoes ? std::optional(InverseOrder{keys.as_node(), {}}) : std::nullopt;
}

}  // namespace epweave
