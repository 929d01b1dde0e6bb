// Bytes of a graph's values, by their recorded types.
#pragma once

#include <cstdint>
#include <vector>

#include "base/id.h"
#include "ir/graph.h"
#include "replay/need/rank_need.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {

class ValueSizes {
 public:
  // All outlive it; every symbol of a recorded type has a number. `bounded`: values whose bounds
  // are followed, or null.
  ValueSizes(const Graph& graph, const Symbols& symbols, NeedOf where, const IdSet<NodeId>* bounded)
      : graph_(graph), symbols_(symbols), where_(where), bounded_(bounded) {}

  bool is_on_device() const { return where_ != NeedOf::kHost; }
  // What moves between ranks needs room on each.
  bool has_own_device() const { return where_ == NeedOf::kOwnDevice; }
  bool is_bounded(NodeId id) const { return bounded_ != nullptr && bounded_->contains(id); }

  std::vector<ResultType> results_of(NodeId id) const;
  // Of a tensor that the node makes, with its bounds.
  std::uint64_t bytes_of(const ResultType& tensor, NodeId maker) const;
  std::uint64_t bytes_of(NodeId id) const;             // of all its tensors
  std::uint64_t bytes_of_all_bounds(NodeId id) const;  // of all its tensors, if they had bounds
  // Of the block of memory in which so many bytes lie.
  std::uint64_t block_of(std::uint64_t bytes) const;
  // Beside operands and results, while the call runs; `of_kernel`: what a device's kernel asks for.
  std::uint64_t scratch_of(NodeId call, std::uint64_t of_kernel) const;

 private:
  std::uint64_t host_scratch(NodeId call) const;
  std::uint64_t bounded_scratch(NodeId call, std::uint64_t of_kernel) const;

  const Graph& graph_;
  const Symbols& symbols_;
  NeedOf where_;
  const IdSet<NodeId>* bounded_;
};

}  // namespace epweave::replay
