// What random steps (testing/random_graph.h) are rewritten by.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "testing/random_graph.h"

namespace epweave {

struct RandomPipeline {
  std::string pipeline;
  bool is_equal = true;  // what it makes computes the same
};

// Chunked in several ways and, where the step exchanges tokens, scheduled.
std::vector<RandomPipeline> list_pipelines(const RandomStep& step);

// The same step with its parameters sharded over two ranks, each gathered in front of the modules:
// what `bucket` merges. For two of three seeds some are gathered over another group, for one of
// these in bfloat16, too. Nothing: the step is of one rank, or its parameters have no halves.
std::optional<RandomStep> shard_parameters(const RandomStep& step, std::uint64_t seed = 0);

// The same step with the loss's own gradient as the seed of backward: it begins with the first
// backward call of the loss.
Graph with_seed(const Graph& graph);

// Bucketed, one way for each seed: for some of them chunked and scheduled, too.
std::string pick_bucket_pipeline(const RandomStep& step, std::uint64_t seed);

// A policy of memory, and what inserts what it says; another for each seed. For some of them in
// front of chunk, for some behind.
std::string pick_memory_pipeline(const RandomStep& step, std::uint64_t seed);

// A policy of memory that is to be refused.
std::string pick_odd_memory_pipeline(std::uint64_t seed);

// One that is to be refused, another for each seed.
std::string pick_odd_pipeline(std::uint64_t seed);

}  // namespace epweave
