#include "passes/schedule/apply_order.h"

#include <vector>

#include "analysis/order.h"
#include "passes/overlap_ep/overlap_ep_movement.h"
#include "passes/pass.h"
#include "passes/record.h"

namespace epweave {
namespace {

std::vector<NodeId> nodes_of(const StepModel& model, std::span<const Place> order) {
  std::vector<NodeId> nodes;
  nodes.reserve(order.size());
  for (Place place : order) nodes.push_back(model.nodes[place]);
  return nodes;
}

// Under the free order, launches of a group may change places: every rank gets this same order.
void prove_order(const Graph& graph, const Body& after, const ScheduleRules& rules) {
  const OrderFacts facts = find_order_facts(graph, graph.step());
  IdSet<NodeId> free_launches(after.nodes.size());
  if (rules.launches == LaunchOrder::kFree)
    for (const Launch& launch : facts.launches) free_launches.insert(launch.node);
  const auto violation = find_order_violation(facts, after, free_launches);
  if (!violation) return;
  throw PassError(
      "schedule.illegal-order",
      "the order found would break one that must hold: " + print_path(graph, graph.step(), {&*violation, 1}),
      site_of(graph, graph.step().nodes[violation->after]), "report the graph; schedule without it");
}

}  // namespace

std::size_t apply_order(const Graph& before, const StepModel& model, std::span<const Place> order,
                        const ScheduleRules& rules, MoveReason reason, Graph& after) {
  Body& step = after.step();
  step.order = nodes_of(model, order);
  prove_order(before, step, rules);
  const std::vector<NodeId> moved = find_moved(before.step(), step.order);
  IdVector<NodeId, Place> places(before.step().nodes.size());
  for (Place i = 0; i < model.size(); ++i) places[model.nodes[i]] = i;
  const StringId pass = after.intern("schedule");
  for (const NodeId id : moved)
    record_moved(*after.context, step.nodes[id],
                 Provenance{.pass = pass, .reason = after.intern(reason(model.kinds[places[id]]))});
  return moved.size();
}

}  // namespace epweave
