// Dependences within one chunked region, by data and by effects, also through nodes that no region
// owns (slices and rejoins, bucketing). A value of another region is simply there.
//
//   d0 = dispatch(a0);  w0 = wait(d0);  s = cat(w0)  [no region];  e0 = f(s)      before(e0) = {s}, before(s)
//   = {w0}
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/effects.h"
#include "analysis/ep_regions.h"
#include "analysis/users.h"

namespace epweave {

// A node by a small number within its region. Body nodes come first, in execution order, so that
// comparing their numbers compares their places; nodes that no region owns but that lie between
// body nodes follow.
using Local = std::uint32_t;

// What all regions of a graph are read from.
struct StepDependences {
  // `inputs` are list_inputs of the step, `edges` the order its effects force. Both graph and
  // inputs are kept by reference.
  StepDependences(const Graph& graph, const std::vector<EpRegion>& regions, const NodeLists& inputs,
                  std::span<const OrderEdge> edges);

  const Graph& graph;
  const NodeLists& inputs;
  NodeLists effects;                          // nodes that must precede each node for their effects
  IdVector<NodeId, std::uint32_t> positions;  // in the present order
  IdVector<NodeId, const EpRegion*> owner;    // of body nodes
  // Scratch, so that a region costs its own size: number in the region at work, kNone between
  // regions.
  static constexpr Local kNone = ~0U;
  IdVector<NodeId, Local> local;
};

class RegionGraph {
 public:
  // One at a time over the same step.
  RegionGraph(StepDependences& step, const EpRegion& region);
  ~RegionGraph();
  RegionGraph(const RegionGraph&) = delete;
  RegionGraph& operator=(const RegionGraph&) = delete;

  Local body_size() const { return body_size_; }
  Local size() const { return static_cast<Local>(nodes_.size()); }
  bool is_body(Local i) const { return i < body_size_; }
  NodeId node(Local i) const { return nodes_[i]; }
  Local local(NodeId body_node) const { return step_.local[body_node]; }
  std::span<const Local> before(Local i) const { return slice(before_, before_begin_, i); }
  std::span<const Local> after(Local i) const { return slice(after_, after_begin_, i); }

 private:
  static std::span<const Local> slice(const std::vector<Local>& items,
                                      const std::vector<std::uint32_t>& begins, Local i) {
    return {items.data() + begins[i], begins[i + 1] - begins[i]};
  }
  void add_dependences(Local i);
  void add_dependence(NodeId id, NodeId dep);
  void invert();

  StepDependences& step_;
  const EpRegion& region_;
  Local body_size_ = 0;
  std::vector<NodeId> nodes_;
  std::vector<std::uint32_t> before_begin_{0}, after_begin_;
  std::vector<Local> before_, after_;
};

}  // namespace epweave
