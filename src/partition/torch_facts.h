// What PyTorch's partitioner asks of the values of a graph, whatever it then bans: sizes, distances
// to backward, tags, and what must run once.
#pragma once

#include <cstdint>

#include "cost/cost.h"
#include "cost/extents.h"
#include "ops/memory_traits.h"
#include "partition/run_once.h"

namespace epweave {

class TorchFacts {
 public:
  static constexpr std::uint32_t kFar = 1'000'000'000;  // not read by backward at all

  TorchFacts(const Graph& graph, const Joint& joint);

  const Graph& graph() const { return graph_; }
  const Context& context() const { return context_; }
  const Body& body() const { return body_; }
  const Joint& joint() const { return joint_; }

  const Node& node(NodeId id) const { return body_.nodes[id]; }
  bool is_output(NodeId id) const { return node(id).kind == NodeKind::kOutput; }
  bool is_input(NodeId id) const { return node(id).kind == NodeKind::kPlaceholder; }
  bool is_call(NodeId id) const { return node(id).kind == NodeKind::kCall; }
  bool is_element(NodeId id) const;
  bool is_device(NodeId id) const;
  bool is_real_number(NodeId id) const;  // a SymFloat
  bool has(NodeId id, MemoryTrait trait) { return traits_.has(node(id), trait); }
  TypeKind kind_of(NodeId id) const { return context_.types[node(id).type].kind; }

  // In bytes, as PyTorch counts them.
  std::int64_t size_of(NodeId id);
  // By PyTorch's counter, which knows fewer ops; what it does not know is the least there is.
  std::int64_t count_flops(NodeId id);
  // Edges to the nearest user that forward does not need.
  std::uint32_t distance_of(NodeId id) const { return distance_[id]; }
  // The place among what forward needs.
  std::uint32_t place_of(NodeId id) const { return place_[id]; }

  // Of parameters and the like.
  bool is_state(NodeId id) const { return state_.contains(id); }
  bool shows_input(NodeId id) const;
  // Whether both are in one kernel.
  bool is_fusible(NodeId producer, NodeId user);
  // A quarter of what it takes, or less.
  bool is_reduction(NodeId id);

  // SaveMarks, RunOnce.
  bool is_tagged_saved(NodeId id) const { return marks_.is_saved(id); }
  bool must_save(NodeId id) const { return marks_.must_save(id); }
  bool is_done_once(NodeId id) const { return once_.done_once.contains(id); }
  bool runs_once(NodeId id) const { return once_.runs_once.contains(id); }
  bool reads_overwritten(NodeId id) const { return once_.reads_overwritten.contains(id); }
  bool reads_early(NodeId id) const { return once_.reads_early.contains(id); }
  bool must_recompute(NodeId id) const;

 private:
  bool has_effect(NodeId id) const;
  std::int64_t bytes_of(TypeId type);
  void find_distances();

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Joint& joint_;
  const SaveMarks marks_;
  const RunOnce once_;
  MemoryTraits traits_;
  Extents extents_;
  CostModel flops_;
  IdSet<NodeId> state_;
  IdVector<NodeId, std::int64_t> sizes_;
  IdVector<NodeId, std::uint32_t> distance_, place_;
};

}  // namespace epweave
