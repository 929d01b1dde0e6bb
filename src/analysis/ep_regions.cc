#include "analysis/ep_regions.h"

#include <algorithm>
#include <numeric>

#include "ir/op.h"
#include "ir/walk.h"

namespace epweave {
namespace {

EpPart& find_part(EpRegion& region, std::int32_t part) {
  for (EpPart& p : region.parts)
    if (p.part == part) return p;
  region.parts.push_back({part, {}, {}});
  return region.parts.back();
}

// Regions by root and direction, in the order in which they are first asked for.
class RegionIndex {
 public:
  explicit RegionIndex(std::vector<EpRegion>& regions) : regions_(regions) {}

  EpRegion& find(StringId root, bool backward) {
    std::uint32_t& index = (backward ? backward_ : forward_).at(root);
    if (index == kNone) {
      index = static_cast<std::uint32_t>(regions_.size());
      regions_.push_back({root, backward, {}});
    }
    return regions_[index];
  }

 private:
  static constexpr std::uint32_t kNone = ~0U;
  std::vector<EpRegion>& regions_;
  SideTable<StringId, std::uint32_t> forward_{kNone}, backward_{kNone};
};

}  // namespace

std::size_t EpRegion::count_exchanges() const {
  return std::accumulate(parts.begin(), parts.end(), std::size_t{0},
                         [](std::size_t sum, const EpPart& part) { return sum + part.exchanges.size(); });
}

bool is_in_backward_region(const Node& node) {
  return node.chunk.backward.value_or(node.is_backward());
}

bool is_token_exchange(const Graph& graph, const Node& node) {
  static const OpInfo* const all_to_all = find_op("_c10d_functional.all_to_all_single.default");
  if (node.op != all_to_all || !node.ep.token_exchange) return false;
  const std::string_view label = graph.text(node.ep.token_exchange);
  return label == "dispatch" || label == "combine";
}

EpRegions find_ep_regions(const Graph& graph) {
  EpRegions found;
  const Body& body = graph.step();
  const StringId body_role = graph.context->strings.find("body");
  if (!body_role) return found;
  RegionIndex index(found.regions);
  for (const auto [id, node] : walk(body)) {
    if (node.chunk.role != body_role) continue;
    if (!node.chunk.region || !node.chunk.part || *node.chunk.part < 0) {
      found.malformed.push_back(id);
      continue;
    }
    EpPart& part = find_part(index.find(node.chunk.region, is_in_backward_region(node)), *node.chunk.part);
    part.nodes.push_back(id);
    if (is_token_exchange(graph, node)) part.exchanges.push_back(id);
  }
  for (EpRegion& region : found.regions)
    std::sort(region.parts.begin(), region.parts.end(),
              [](const EpPart& a, const EpPart& b) { return a.part < b.part; });
  return found;
}

}  // namespace epweave
