#include "analysis/stats.h"

#include <algorithm>
#include <optional>

#include "ir/op.h"

namespace epweave {
namespace {

bool is_token_exchange(const Node& node) {
  return node.ep.token_exchange && node.op && node.op->cost == CostClass::kCollective;
}

std::vector<RegionStats> count_regions(const Graph& graph) {
  const RegionParts parts(graph);
  std::vector<RegionStats> regions;
  SideTable<StringId, std::optional<std::size_t>> forward, backward;  // position in `regions`
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (!node.chunk.region) continue;
    const bool is_backward = is_in_backward_region(node);
    std::optional<std::size_t>& position = (is_backward ? backward : forward).at(node.chunk.region);
    if (!position) {
      position = regions.size();
      regions.push_back({.root = node.chunk.region, .backward = is_backward, .parts = parts[node]});
    }
    if (is_token_exchange(node)) ++regions[*position].exchanges;
  }
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

bool is_in_backward_region(const Node& node) {
  return node.chunk.backward.value_or(node.is_backward());
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
