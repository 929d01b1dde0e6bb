#include "analysis/ep_regions.h"

#include <algorithm>
#include <numeric>

#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

EpPart& find_part(EpRegion& region, std::int32_t part) {
  for (EpPart& p : region.parts)
    if (p.part == part) return p;
  region.parts.push_back({part, {}, {}});
  return region.parts.back();
}

}  // namespace

std::size_t EpRegion::count_exchanges() const {
  return std::accumulate(parts.begin(), parts.end(), std::size_t{0},
                         [](std::size_t sum, const EpPart& part) { return sum + part.exchanges.size(); });
}

bool is_in_backward_region(const Node& node) {
  return node.chunk.backward.value_or(node.is_backward());
}

bool is_token_exchange(const Graph& graph, const Node& node) {
  if (!has_family(node, OpFamily::kAllToAll) || !node.ep.token_exchange) return false;
  const std::string_view label = graph.text(node.ep.token_exchange);
  return label == "dispatch" || label == "combine";
}

bool is_labelled_exchange(const Node& node) {
  return node.ep.token_exchange || node.ep.token_count_exchange || node.ep.token_exchange_wait;
}

EpRegionFinder::EpRegionFinder(const Graph& graph)
    : graph_(graph), body_role_(graph.context->strings.find("body")) {}

EpRegion& EpRegionFinder::find(StringId root, bool backward) {
  std::uint32_t& place = (backward ? backward_ : forward_).at(root);
  if (place == kNone) {
    place = static_cast<std::uint32_t>(found_.regions.size());
    found_.regions.push_back({root, backward, {}});
  }
  return found_.regions[place];
}

void EpRegionFinder::add(NodeId id, const Node& node) {
  const ChunkInfo& chunk = node.chunk;
  if (!chunk.role || chunk.role != body_role_) return;
  if (!chunk.region || !chunk.part || *chunk.part < 0) {
    found_.malformed.push_back(id);
    return;
  }
  EpPart& part = find_part(find(chunk.region, is_in_backward_region(node)), *chunk.part);
  part.nodes.push_back(id);
  if (is_token_exchange(graph_, node)) part.exchanges.push_back(id);
}

EpRegions EpRegionFinder::take() {
  for (EpRegion& region : found_.regions)
    std::sort(region.parts.begin(), region.parts.end(),
              [](const EpPart& a, const EpPart& b) { return a.part < b.part; });
  return std::move(found_);
}

EpRegions find_ep_regions(const Graph& graph) {
  EpRegionFinder finder(graph);
  for (const auto [id, node] : walk(graph.step())) finder.add(id, node);
  return finder.take();
}

}  // namespace epweave
