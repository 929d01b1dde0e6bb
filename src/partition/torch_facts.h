// What PyTorch's partitioner asks of the values of a graph, whatever it then bans: sizes, distances
// to backward, tags, and what must run once.
#pragma once

#include <cstdint>

#include "analysis/done_again.h"
#include "analysis/effects.h"
#include "analysis/recompute_tags.h"
#include "cost/cost.h"
#include "cost/extents.h"
#include "ops/memory_traits.h"
#include "partition/cut.h"

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

  bool is_tagged_saved(NodeId id) const;
  // A collective that is not tagged, or what is taken of its tuple.
  bool must_save(NodeId id) const { return must_save_.contains(id); }
  bool must_recompute(NodeId id) const;
  // What makes storage that forward writes, what writes it, what uses what forward frees, and what
  // is said to be forward's.
  bool is_done_once(NodeId id) const { return done_once_.contains(id); }
  // What backward must not do again, whatever is allowed: it would draw other numbers, write once
  // more, or read something else. Calls, elements of their tuples, and waits.
  bool runs_once(NodeId id) const { return runs_once_.contains(id); }
  bool reads_overwritten(NodeId id) const { return reads_overwritten_.contains(id); }
  // In front of a write of forward.
  bool reads_early(NodeId id) const { return reads_early_.contains(id); }

 private:
  template <class Holds>
  bool holds_with_call(NodeId id, const Holds& holds) const {
    return epweave::holds_with_call(context_, body_, id, holds);
  }
  bool is_tagged(NodeId id) const;
  bool has_effect(NodeId id) const;
  std::int64_t bytes_of(TypeId type);
  void find_distances();
  void save_collectives();
  void save_leaves(NodeId id);
  void find_writes();
  IdSet<NodeId> find_read_by_name(const Effects& effects) const;
  NodeId find_taken(const Effects& effects, NodeId id, NodeId newest,
                    const SideTable<NodeId, NodeId>& taken) const;
  void find_done_once(const Effects& effects);
  void find_required();
  void find_calls_done_once();

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Joint& joint_;
  const RecomputeTags tags_;
  MemoryTraits traits_;
  Extents extents_;
  CostModel flops_;
  IdSet<NodeId> state_, region_outputs_, must_save_, reads_overwritten_, reads_early_, done_once_, runs_once_;
  IdVector<NodeId, std::int64_t> sizes_;
  IdVector<NodeId, std::uint32_t> distance_, place_;
};

}  // namespace epweave
