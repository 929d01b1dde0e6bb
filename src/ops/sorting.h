// What a sort's arguments say.
//
//   argsort(x, -1, descending=True)      of dimension 1 of two, downwards
#pragma once

#include <cstddef>
#include <optional>

#include "ir/facts.h"
#include "ir/graph.h"

namespace epweave {

// `sort` is a call of the family kSort. Whether it is known to order upwards.
bool sorts_upwards(const Context& context, const Node& sort);
// Whether it says in which order equal keys lie (`stable=True`). Else a kernel chooses, and may do
// so by the number of rows.
bool keeps_equal_in_order(const Context& context, const Node& sort);
// The dimension that a sort or topk of a tensor of `rank` dimensions sorts, from 0; below 0: none
// (rank 0).
int sorted_dimension(const Context& context, const Node& sort, std::size_t rank);
// Whether it orders rows as wholes. Of keys [16, 8] sorted along dimension 0 each column is in an
// order of its own: row i of the result is no row of the keys.
bool sorts_whole_rows(const Context& context, const Node& sort, const TensorType& keys);

// The sort whose order a value is: of `argsort`, or element 1 of `sort`; none if it is no order.
NodeId sort_of_order(const Context& context, const Body& body, NodeId value);

// A value that says of each row that an order was made of where it went: the order upwards of that
// order, or 0, 1, .. written to it.
//
//   %o = sort(%k)[1]    %back = sort(%o)[1]                                  %x[%o][%back] is %x
//                       %back = index_put(empty_like(%o), [%o], arange(n))   so, too
struct InverseOrder {
  NodeId order;
  NodeId rows;  // 0, 1, .., where it is written; none of a sort
};
// None if the value is no such. `facts`: of the graph, for sizes that are written in several ways.
std::optional<InverseOrder> inverse_order(const Context& context, Facts& facts, const Body& body,
                                          NodeId value);

}  // namespace epweave
