#include "passes/overlap_ep/overlap_ep_region.h"

#include <algorithm>

namespace epweave {

StepDependences::StepDependences(const Graph& g, const std::vector<EpRegion>& regions, const NodeLists& in,
                                 std::span<const OrderEdge> edges)
    : graph(g),
      inputs(in),
      positions(find_positions(g.step(), g.step().order)),
      owner(g.step().nodes.size(), nullptr),
      local(g.step().nodes.size(), kNone) {
  std::vector<std::pair<NodeId, NodeId>> pairs;
  pairs.reserve(edges.size());
  for (const OrderEdge& edge : edges) pairs.emplace_back(edge.after, edge.before);
  effects = list_pairs(g.step().nodes.size(), pairs);
  for (const EpRegion& region : regions)
    for (const EpPart& part : region.parts)
      for (NodeId id : part.nodes) owner[id] = &region;
}

RegionGraph::RegionGraph(StepDependences& step, const EpRegion& region) : step_(step), region_(region) {
  for (const EpPart& part : region.parts) nodes_.insert(nodes_.end(), part.nodes.begin(), part.nodes.end());
  std::sort(nodes_.begin(), nodes_.end(),
            [&](NodeId a, NodeId b) { return step_.positions[a] < step_.positions[b]; });
  body_size_ = static_cast<Local>(nodes_.size());
  for (Local i = 0; i < body_size_; ++i) step_.local[nodes_[i]] = i;
  for (Local i = 0; i < nodes_.size(); ++i) add_dependences(i);  // finds nodes in between, which queue up
  invert();
}

RegionGraph::~RegionGraph() {
  for (NodeId id : nodes_) step_.local[id] = StepDependences::kNone;
}

void RegionGraph::add_dependences(Local i) {
  const NodeId id = nodes_[i];
  for (NodeId dep : step_.inputs[id]) add_dependence(id, dep);
  for (NodeId dep : step_.effects[id]) add_dependence(id, dep);
  before_begin_.push_back(static_cast<std::uint32_t>(before_.size()));
}

void RegionGraph::add_dependence(NodeId id, NodeId dep) {
  const EpRegion* owner = step_.owner[dep];
  if (owner != nullptr && owner != &region_) return;
  if (step_.positions[dep] < step_.positions[nodes_.front()]) return;  // before the whole body
  EPWEAVE_CHECK(step_.positions[dep] < step_.positions[id]);           // no cycle (S-10)
  if (step_.local[dep] == StepDependences::kNone) {
    step_.local[dep] = size();
    nodes_.push_back(dep);
  }
  before_.push_back(step_.local[dep]);
}

void RegionGraph::invert() {
  after_begin_.assign(nodes_.size() + 1, 0);
  after_.resize(before_.size());
  for (Local dep : before_) ++after_begin_[dep + 1];
  for (std::size_t i = 1; i < after_begin_.size(); ++i) after_begin_[i] += after_begin_[i - 1];
  std::vector<std::uint32_t> next(after_begin_.begin(), after_begin_.end() - 1);
  for (Local i = 0; i < size(); ++i)
    for (Local dep : before(i)) after_[next[dep]++] = i;
}

}  // namespace epweave
