#include "passes/overlap_ep/overlap_ep_refusal.h"

#include <fmt/format.h>

namespace epweave {

void decline(const Graph& graph, NodeId node, const Refusal& refusal, const std::string& problem) {
  const Node* const at = node ? &graph.step().nodes[node] : nullptr;
  const std::string subject = at != nullptr ? fmt::format("{}: ", graph.text(at->name)) : std::string();
  throw PassError(fmt::format("overlap-ep.{}", refusal.name), subject + problem,
                  at != nullptr ? site_of(graph, *at) : Site(), refusal.remedy);
}

std::string describe_region(const Graph& graph, StringId root, bool backward) {
  return fmt::format("region {} ({})", graph.text(root), backward ? "backward" : "forward");
}

}  // namespace epweave
