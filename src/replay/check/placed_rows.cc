#include "replay/check/placed_rows.h"

#include "ir/facts.h"
#include "ops/bind.h"
#include "ops/collective_arguments.h"
#include "replay/check/sum_check.h"

namespace epweave::replay {

IdSet<NodeId> find_placed_rows(const PairedGraphs& graphs) {
  const Graph& graph = graphs.a;
  Facts facts(graph);
  IdSet<NodeId> exchanges;
  for (const Group& group : graphs.groups) {
    const Node& node = graph.step().nodes[group.whole];
    if (!group.is_parts) continue;
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
