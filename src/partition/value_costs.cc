#include "partition/value_costs.h"

#include <algorithm>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "analysis/unshard.h"
#include "cost/cost.h"
#include "cost/step_model.h"
#include "ir/facts.h"
#include "ops/op.h"

namespace epweave {
namespace {

// The operand whose storage the value shows, or none. The first wait for a collective owns what
// that made.
NodeId find_base(Facts& facts, const Graph& graph, NodeId id) {
  const Node& node = graph.step().nodes[id];
  if (node.kind != NodeKind::kCall) return {};
  const NodeId shown = shown_operand(*graph.context, graph.step(), id);
  if (!shown || (is_wait(node) && !is_wait(graph.step().nodes[shown]))) return {};
  return may_copy(node) && showing_of(facts, graph, id) == Showing::kCopy ? NodeId() : shown;
}

void mark_unshards(const Graph& graph, const Joint& joint, ValueCosts& costs) {
  for (const UnshardChain& chain : find_unshard_chains(graph.step(), joint.inputs, joint.users)) {
    for (NodeId id : list_chain(graph.step(), joint.inputs, chain)) costs.in_unshard[id.index()] = 1;
    costs.is_gathered[chain.end.index()] = 1;
  }
}

}  // namespace

ValueCosts price_values(const Graph& graph, const Joint& joint, const Cluster& cluster) {
  const Body& body = graph.step();
  const std::size_t size = body.nodes.size();
  ValueCosts costs{.bytes = std::vector<std::int64_t>(size),
                   .seconds = std::vector<double>(size),
                   .flops = std::vector<std::int64_t>(size),
                   .base = std::vector<NodeId>(size),
                   .is_state = std::vector<std::uint8_t>(size),
                   .in_unshard = std::vector<std::uint8_t>(size),
                   .is_gathered = std::vector<std::uint8_t>(size)};
  const StepModel model = model_step(graph, cluster);
  Extents extents(graph);
  Facts facts(graph);
  CostModel work(graph, extents);
  mark_unshards(graph, joint, costs);
  for (Place place = 0; place < body.order.size(); ++place) {
    const NodeId id = body.order[place];
    const Node& node = body.nodes[id];
    const std::size_t at = id.index();
    const NodeId shown = find_base(facts, graph, id);
    costs.base[at] = shown ? costs.base[shown.index()] : id;
    costs.is_state[at] = body.nodes[costs.base[at]].kind == NodeKind::kPlaceholder;
    if (shown) costs.is_gathered[at] |= costs.is_gathered[shown.index()];
    const TensorType* type = tensor_of(*graph.context, node.type);
    if (!shown && type != nullptr && !is_launch(node))
      costs.bytes[at] = extents.storage_bytes(*type).value_or(0);
    if (node.kind != NodeKind::kCall || joint.backward(id) || !joint.forward(id)) continue;
    if (costs.in_unshard[at] == 0) costs.seconds[at] = model.seconds[place];
    if (const auto cost = is_kernel(node) ? work.cost_of(id) : std::nullopt) costs.flops[at] = cost->flops;
  }
  return costs;
}

CutTotals add_up(const Graph& graph, const Cut& cut, const ValueCosts& costs) {
  CutTotals totals;
  IdSet<NodeId> counted(graph.step().nodes.size());
  for (NodeId id : cut.saved) {
    const NodeId base = costs.base[id.index()];
    if (costs.is_state[id.index()] != 0 || !counted.insert(base)) continue;
    totals.bytes += costs.bytes[base.index()];
    if (costs.is_gathered[id.index()] != 0) totals.gathered += costs.bytes[base.index()];
  }
  for (NodeId id : graph.step().order) {
    if (!cut.recomputes(id)) continue;
    totals.seconds += costs.seconds[id.index()];
    totals.flops += costs.flops[id.index()];
  }
  return totals;
}

}  // namespace epweave
