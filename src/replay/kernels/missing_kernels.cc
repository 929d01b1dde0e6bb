#include "replay/kernels/missing_kernels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "ops/op.h"
#include "replay/collectives/collective_call.h"
#include "replay/collectives/mesh_ops.h"

namespace epweave::replay {

MissingKernels::MissingKernels(std::string_view graph, std::vector<std::string> ops, std::string remedy)
    : PassError(
          "replay.no-kernel",
          fmt::format("{}{} of the graph's ops cannot be executed: {}",
                      graph.empty() ? "" : fmt::format("{}: ", graph), ops.size(), fmt::join(ops, ", ")),
          Site{}, std::move(remedy)),
      ops_(std::move(ops)) {}

bool can_execute(const OpInfo& op, const KernelTable& kernels) {
  if (op.cost == CostClass::kCollective) return find_collective(op).has_value();
  return op.cost == CostClass::kWait || is_mesh_op(op) || kernels.find(op) != nullptr;
}

std::vector<std::string> find_missing_kernels(const Graph& graph, const KernelTable& kernels) {
  std::set<std::string> missing;
  for (const Body& body : graph.bodies) {
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      if (node.kind == NodeKind::kCall && (node.op == nullptr || !can_execute(*node.op, kernels)))
        missing.emplace(graph.text(node.target));
    }
  }
  return {missing.begin(), missing.end()};
}

}  // namespace epweave::replay
