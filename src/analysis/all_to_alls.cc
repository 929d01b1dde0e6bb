#include "analysis/all_to_alls.h"

#include <algorithm>

#include "ops/bind.h"
#include "ops/named_arg.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Of several ranks one alone sends to, or gets from, this one, and the graph says which.
bool names_one_rank(std::span<const Arg> splits) {
  return splits.size() > 1 && std::ranges::all_of(splits, &Arg::is_int) &&
         std::ranges::count_if(splits, [](Arg size) { return size.as_int() != 0; }) == 1;
}

}  // namespace

bool is_row_exchange(const Context& context, const Node& node) {
  return has_family(node, OpFamily::kAllToAll) &&
         !(names_one_rank(named_items(context, node, "input_split_sizes")) &&
           names_one_rank(named_items(context, node, "output_split_sizes")));
}

bool has_row_exchange(const Graph& graph) {
  const Body& step = graph.step();
  return std::ranges::any_of(step.order,
                             [&](NodeId id) { return is_row_exchange(*graph.context, step.nodes[id]); });
}

}  // namespace epweave
