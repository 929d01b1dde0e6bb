// chunk in listings and pipelines, and what presets that contain it share with it.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/chunk/chunk.h"
#include "passes/pass.h"

namespace epweave {

namespace chunk_option {
extern const OptionSpec kRoots, kDim, kParts, kDense, kSizes, kCast, kAttention, kGradAccumulation, kJoin,
    kContract;
}

PassInfo chunk_row();

// What the options of a call of chunk mean. Each throws UsageError where they contradict another.
ChunkOptions read_chunk_options(const Options& options);
std::vector<ChunkRoot> read_roots(const Options& options);
std::int64_t read_parts(const Options& options);  // as many as sizes are given
GridDim read_dim(const Options& options);
AttentionMode read_attention(const Options& options);

}  // namespace epweave
