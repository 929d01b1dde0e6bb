#include "analysis/all_to_alls.h"

#include <algorithm>

#include "analysis/ep_regions.h"
#include "ops/bind.h"
#include "ops/named_arg.h"
#include "ops/op.h"

namespace epweave {
namespace {

// Of several ranks at most one sends to, or gets from, this one, and the graph says which.
bool names_at_most_one_rank(std::span<const Arg> splits) {
  return splits.size() > 1 && std::ranges::all_of(splits, &Arg::is_int) &&
         std::ranges::count_if(splits, [](Arg size) { return size.as_int() != 0; }) <= 1;
}

bool is_shift(const Context& context, const Node& node) {
  return names_at_most_one_rank(named_items(context, node, "input_split_sizes")) &&
         names_at_most_one_rank(named_items(context, node, "output_split_sizes"));
}

}  // namespace

bool is_row_exchange(const Context& context, const Node& node) {
  return has_family(node, OpFamily::kAllToAll) && (is_labelled_exchange(node) || !is_shift(context, node));
}

bool has_row_exchange(const Graph& graph) {
  const Body& step = graph.step();
  return std::ranges::any_of(step.order,
                             [&](NodeId id) { return is_row_exchange(*graph.context, step.nodes[id]); });
}

}  // namespace epweave
