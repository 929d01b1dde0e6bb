#include "replay/check/placed_rows.h"

#include <algorithm>
#include <optional>
#include <string>

#include "ir/facts.h"
#include "ops/bind.h"
#include "ops/collective_arguments.h"
#include "replay/check/sum_check.h"

namespace epweave::replay {
namespace {

// What places are counted along; none of a value that is no tensor with dimensions.
std::optional<std::string> first_extent(const Graph& graph, NodeId id) {
  const TensorType* type = tensor_of(*graph.context, graph.step().nodes[id].type);
  if (type == nullptr || type->rank() == 0) return std::nullopt;
  return std::string(graph.context->exprs.text(type->sizes[0]));
}

// Parts as long as the whole are its summands: their elements lie where those of the whole do.
bool are_rows(const PairedGraphs& graphs, const Group& group) {
  const auto part =
      std::ranges::find_if(group.values, [](NodeId id) { return bool(id); });  // others are missing
  return part != group.values.end() && first_extent(graphs.a, group.whole) != first_extent(graphs.b, *part);
}

}  // namespace

IdSet<NodeId> find_placed_rows(const PairedGraphs& graphs) {
  const Graph& graph = graphs.a;
  Facts facts(graph);
  IdSet<NodeId> exchanges;
  for (const Group& group : graphs.groups) {
    const Node& node = graph.step().nodes[group.whole];
    if (!group.is_parts || !are_rows(graphs, group)) continue;
    const bool is_by_place =
        has_family(node, OpFamily::kReduceScatter) ||
        (has_family(node, OpFamily::kAllToAll) && count_equal_shares(facts, graph, node));
    if (is_by_place) exchanges.insert(group.whole);
  }
  IdSet<NodeId> placed;
  const IdSet<NodeId> reached = find_regrouped(graph, exchanges).reached;
  for (const Group& group : graphs.groups)
    if (group.is_parts && reached.contains(group.whole)) placed.insert(group.whole);
  return placed;
}

}  // namespace epweave::replay
