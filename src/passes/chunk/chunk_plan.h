// The frozen plan of the chunk pass: everything that is decided before a node is written.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "passes/chunk/chunk.h"
#include "passes/chunk/chunk_division.h"
#include "placement/placement.h"
#include "placement/rows/frames.h"
#include "placement/token_extent.h"

namespace epweave {

struct ChunkPlan {
  GridDim dim = GridDim::kBatch;
  GradAccumulation grad_accumulation = GradAccumulation::kEarly;
  JoinMode join = JoinMode::kLate;
  std::vector<Division> divisions;
  Placements placements;
  std::vector<StringId> token_symbols;
  // Facts the division rests on that the graph does not state: `u0 = 1024`, `3 <= u0`. Added to the
  // symbol's assumptions.
  struct Assumed {
    StringId symbol;
    ExprId statement;
    std::string text;  // for people
  };
  std::vector<Assumed> assumed;
  FrameClaims claims;  // that rows keep to their tokens
  // Where the parts of a divided FlexAttention call's sequence begin and the last one ends: {0,
  // 512, 1024}.
  std::map<NodeId, std::vector<std::int64_t>> attention_borders;

  // Of a region that is in the plan.
  const Division& division(RegionId region) const {
    return divisions[placements.regions[region.index()].division];
  }
};

// Throws PassError.
ChunkPlan plan_chunks(const Graph& graph, const ChunkOptions& options);

// One line per decision, for people and for the pipeline log.
std::vector<std::string> print_plan(const Graph& graph, const ChunkPlan& plan);
std::string print_proved(std::size_t count);  // "5 row writes and sums over rows"

// Writes the new graph. Throws PassError where a value is wanted in a form it has not.
Graph lower_chunks(const Graph& graph, const ChunkPlan& plan);

}  // namespace epweave
