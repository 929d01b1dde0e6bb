#include "passes/bucket/group_coordinates.h"

#include <algorithm>

#include "analysis/order.h"
#include "analysis/users.h"
#include "analysis/world.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "passes/coordinates.h"

namespace epweave {

GroupCoordinates write_group_coordinates(Graph& graph, MergeScope scope, std::string_view pass) {
  const OrderFacts facts = find_order_facts(graph, graph.step());
  const NodeLists users = invert(facts.inputs, graph.step().order);
  CoordinateWriter writer(graph, read_world(graph).size, pass);
  GroupCoordinates made;
  for (const Mergeable& m : find_mergeables(graph, facts.inputs, users, facts.effects, scope).list)
    if (m.axis && m.axis->extent > 1)
      made.emplace(std::pair(m.axis->stride, m.axis->extent), writer.coordinate(m.axis_name, *m.axis));
  writer.place();
  return made;
}

void drop_unread_coordinates(Graph& graph, const GroupCoordinates& coordinates) {
  Body& step = graph.step();
  IdSet<NodeId> unread(step.nodes.size());
  for (const auto& [axis, id] : coordinates) unread.insert(id);
  for (const auto [id, node] : walk(*graph.context, step))
    for_each_input(*graph.context, node, [&](NodeId input) { unread.erase(input); });
  for (const auto& coordinate : coordinates)
    if (const NodeId id = coordinate.second; unread.contains(id)) {
      const NodeId ranks = arg_of(*graph.context, step.nodes[id], 0).as_node();
      std::erase_if(step.order, [&](NodeId at) { return at == id || at == ranks; });
      for (const Binding& binding : step.nodes[id].extra->bindings)
        std::erase_if(graph.symbols, [&](const Symbol& symbol) { return symbol.name == binding.symbol; });
    }
}

}  // namespace epweave
