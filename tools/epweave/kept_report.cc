#include "kept_report.h"

namespace epweave::cli {
namespace {

std::string_view kind_of(const Graph& graph, NodeId id, const ValueCosts& costs) {
  const Node& node = graph.step().nodes[id];
  if (is_number(*graph.context, node)) return "symbol";
  if (costs.is_state[id.index()] != 0) return "parameter";
  return costs.is_gathered[id.index()] != 0 ? "gathered" : "activation";
}

}  // namespace

Json list_recomputed(const Graph& graph, const Cut& cut, const ValueCosts& costs) {
  Json rows = Json::array();
  for (NodeId id : graph.step().order)
    if (cut.recomputes(id))
      rows.push_back({{"name", graph.text(graph.step().nodes[id].name)},
                      {"target", graph.text(graph.step().nodes[id].target)},
                      {"seconds", costs.seconds[id.index()]}});
  return rows;
}

Json kept_row(const Graph& graph, NodeId id, const ValueCosts& costs) {
  const NodeId base = costs.base[id.index()];
  return {{"name", graph.text(graph.step().nodes[id].name)},
          {"bytes", costs.bytes[base.index()]},
          {"storage", graph.text(graph.step().nodes[base].name)},
          {"kind", kind_of(graph, id, costs)}};
}

}  // namespace epweave::cli
