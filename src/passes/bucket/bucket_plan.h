// Which modules' collectives share buckets: torchtitan's plan of a decoder, read off the graph.
//
//   parameters tok_embeddings, layers.0.attention.wq, .., norm, lm_head
//   -> [tok_embeddings]  [layers.0]  [layers.1]  ..  [norm, lm_head, loss]
//
// Modules in front of the blocks stand alone, those behind them are one entry; with `loss` where
// the loss computes the head, part by part. A block whose experts are sharded over a group of their
// own is two entries:
//
//   [layers.1.attention_norm, layers.1.attention, layers.1.ffn_norm, layers.1.moe.router, layers.1.moe.shared_experts]
//   [layers.1.moe.routed_experts.inner_experts]
#pragma once

#include <span>
#include <vector>

#include "passes/bucket/mergeable.h"

namespace epweave {

struct PlanEntry {
  std::vector<StringId> modules;
};

// Disjoint entries, in the order in which buckets are made.
std::vector<PlanEntry> plan_blocks(const Graph& graph, std::span<const Mergeable> collectives);

// The collectives of one entry in one direction; of each module of the entry in turn those of the
// module and below it, in execution order.
struct BucketScope {
  const PlanEntry* entry = nullptr;
  bool backward = false;
  std::vector<std::size_t> collectives;  // indices
};
std::vector<BucketScope> list_scopes(const Graph& graph, std::span<const PlanEntry> plan,
                                     std::span<const Mergeable> collectives);

// Of each module with parameters or buffers its place among those, in the order of the step's
// inputs.
SideTable<StringId, std::uint32_t> order_modules(const Graph& graph);

}  // namespace epweave
