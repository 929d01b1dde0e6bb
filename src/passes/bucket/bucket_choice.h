// Which collectives to merge by what the step is predicted to take: `bucket{plan=overlap}`.
//
//   exposed, small    20 us of latency saved for each that joins, a few of packing: merged, across blocks, too
//   exposed, large    32 MB gathered cost 24 us of copying: left alone
//   hidden            nothing to save, copying costs: left alone
//
// Collectives that can share a launch (can_merge, one direction), in the order of the step: first
// those of a block together, then neighbours two by two, then the results two by two, until nothing
// pays. Each merge is tried on a clock (trial_merges.h), so what is merged later is tried in the
// step that earlier merges left.
#pragma once

#include <span>
#include <vector>

#include "cost/step_model.h"
#include "passes/bucket/bucket_plan.h"

namespace epweave {

// Indices of collectives that share a launch, two or more, in the order in which they are merged.
// `budget`: bytes that may live at any node. `measured`: what the model's prices are of, or null.
std::vector<std::vector<std::size_t>> choose_buckets(const Graph& graph, const StepModel& model,
                                                     std::span<const Mergeable> collectives,
                                                     std::span<const BucketScope> scopes, std::int64_t budget,
                                                     const MeasuredCosts* measured);

}  // namespace epweave
