#include "cost/stats.h"

#include <algorithm>
#include <optional>

#include "ops/op.h"

namespace epweave {
namespace {

std::vector<RegionStats> count_regions(const Graph& graph) {
  std::vector<RegionStats> regions;
  for (const EpRegion& region : find_ep_regions(graph).regions)
    regions.push_back({.root = region.root,
                       .backward = region.backward,
                       .parts = static_cast<std::uint32_t>(region.parts.back().part) + 1,
                       .exchanges = static_cast<std::uint32_t>(region.count_exchanges())});
  return regions;
}

}  // namespace

double GraphStats::provenance_coverage() const {
  return nodes == 0 ? 0 : static_cast<double>(nodes_with_provenance) / static_cast<double>(nodes);
}

std::size_t GraphStats::count_of(StringId target) const {
  for (const auto& [name, count] : targets)
    if (name == target) return count;
  return 0;
}

RegionParts::RegionParts(const Graph& graph) {
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (!node.chunk.region || node.chunk.part.value_or(-1) < 0) continue;
    std::uint32_t& parts = (is_in_backward_region(node) ? backward_ : forward_).at(node.chunk.region);
    parts = std::max(parts, static_cast<std::uint32_t>(*node.chunk.part) + 1);
  }
}

std::uint32_t RegionParts::operator[](const Node& node) const {
  if (!node.chunk.region) return 0;
  return (is_in_backward_region(node) ? backward_ : forward_)[node.chunk.region];
}

GraphStats count_graph(const Graph& graph) {
  GraphStats stats;
  if (graph.bodies.empty()) return stats;
  SideTable<StringId, std::size_t> calls;
  IdSet<StringId> unknown;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    ++stats.nodes;
    if (!node.provenance.empty()) ++stats.nodes_with_provenance;
    if (node.kind == NodeKind::kPlaceholder) ++stats.placeholders;
    if (node.kind == NodeKind::kGetAttr) ++stats.attributes;
    if (node.kind != NodeKind::kCall) continue;
    ++stats.calls;
    if (calls.at(node.target)++ == 0) stats.targets.emplace_back(node.target, 0);
    if (!node.op && unknown.insert(node.target)) stats.unknown_targets.push_back(node.target);
  }
  for (auto& [target, count] : stats.targets) count = calls[target];
  const auto by_text = [&](StringId a, StringId b) { return graph.text(a) < graph.text(b); };
  std::ranges::sort(stats.targets, by_text, &std::pair<StringId, std::size_t>::first);
  std::ranges::sort(stats.unknown_targets, by_text);
  stats.regions = count_regions(graph);
  return stats;
}

}  // namespace epweave
