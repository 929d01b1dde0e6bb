// chunk: runs selected modules on parts of the tokens, one after the other.
//
//   before                               after chunk{roots=layers.*,parts=2}
//     %x: [u, 3]   %w: [3, 3]              %u = sym_size(%x, 0)         %h = floordiv(%u, 2)
//     %mm = mm(%x, %w)    @layers.0        %s = split_with_sizes(%x, [%h, %h], 0)   %s0 = %s[0]   %s1 = %s[1]
//     %relu = relu(%mm)   @layers.0        %mm_chunk0 = mm(%s0, %w)     %mm_chunk1 = mm(%s1, %w)
//     output(%relu)                        %relu_chunk0 = ...           %relu_chunk1 = ...
//                                          %m = cat([%relu_chunk0, %relu_chunk1], 0)        output(%m)
//
// Three stages, each a value: placements (placement/placement.h) say how each value relates to its
// parts; the plan adds how many parts there are, how large, and what that rests on; lowering writes
// the new graph in one forward walk. Numerics class: chunk-equal for activations, sum-order for the
// joined sums (docs/chunking.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/pass.h"
#include "placement/placement.h"
#include "placement/token_extent.h"

namespace epweave {

// Modules by pattern, and into how many parts they are divided. `layers.*.moe:4`
struct ChunkRoot {
  std::string pattern;
  std::optional<std::int64_t> parts = {};  // none: ChunkOptions::parts
};

struct ChunkOptions {
  std::vector<ChunkRoot> roots = {{"layers.*.moe"}};
  // Which dimension of a [batch, sequence] grid is divided. Where tokens come in one row, both mean
  // that.
  GridDim dim = GridDim::kBatch;
  std::int64_t parts = 2;
  // How many tokens each part has, in order; none: as equal as whole rows allow. Modules that are
  // divided into as many parts have these.
  std::vector<std::int64_t> sizes = {};
  bool require_exchange = true;  // only modules that exchange tokens
  bool dense = false;            // all selected modules, whether they exchange tokens or not
  bool exact_casts = false;
  AttentionMode attention = AttentionMode::kWholeKv;
  GradAccumulation grad_accumulation = GradAccumulation::kEarly;
  JoinMode join = JoinMode::kLate;
  OwnSums own_sums = OwnSums::kRefuse;
};

// Throws UsageError where the text is not PATTERN or PATTERN:PARTS.
ChunkRoot parse_chunk_root(std::string_view text);

// Throws PassError where the graph cannot be divided so.
PassResult chunk(const Graph& graph, const ChunkOptions& options);

}  // namespace epweave
