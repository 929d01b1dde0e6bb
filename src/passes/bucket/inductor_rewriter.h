// Writes the collectives that PyTorch's bucketer merges, and orders the step around them as it
// does.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/order.h"
#include "cost/step_model.h"
#include "passes/bucket/bucket_writer.h"
#include "passes/bucket/mergeable.h"
#include "passes/bucket/merged_graph.h"
#include "passes/schedule/inductor_buckets.h"
#include "passes/schedule/schedule_problem.h"

namespace epweave {

class InductorRewriter {
 public:
  // `graph` has the order that the scheduler gave; model and problem are of the step in front of
  // it, and all outlive this.
  InductorRewriter(Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                   const InductorFacts& facts, GroupCoordinates coordinates, Packing packing);

  // By collective: whether it can be written as one of several.
  const std::vector<bool>& may_merge() const { return may_merge_; }

  void write(InductorBuckets& found);

  std::vector<std::string> list_notes() const;

 private:
  const Mergeable& mergeable(std::uint32_t collective) const {
    return found_.list[mergeable_[collective] - 1];
  }
  void find_mergeable();
  void write_bucket(const std::vector<std::uint32_t>& bucket, InductorDependences& dependences);
  Place add_place(NodeId id, InductorDependences& dependences);
  void sort(const InductorDependences& dependences);
  std::vector<OrderEdge> list_edges(const InductorDependences& dependences) const;
  bool takes(Place after, Place before) const;
  void record_moves(const std::vector<NodeId>& given);

  Graph& graph_;
  const StepModel& model_;
  const ScheduleProblem& problem_;
  const InductorFacts& f_;
  OrderFacts facts_;
  NodeLists users_;
  Mergeables found_;
  MergedGraph merged_;
  BucketWriter writer_;
  std::vector<bool> may_merge_;
  std::vector<std::size_t> mergeable_;                     // by collective: 1 + position in found_
  std::vector<NodeId> nodes_;                              // by place, of those that were added, too
  std::unordered_map<NodeId, NodeId> written_;             // what stands in place of a launch, a wait, a cast
  std::array<std::size_t, 3> merged_count_{}, buckets_{};  // by kind
};

}  // namespace epweave
