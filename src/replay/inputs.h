// Inputs made from a seed: the same numbers on every machine and for every way a graph is cut among ranks.
//
// Generator: element i of the global tensor named `key` under `seed` is made from
//   splitmix64(hash(key) ^ splitmix64(seed) + (i + 1) * 0x9e3779b97f4a7c15)
// (hash: FNV-1a, 64 bits), so any element can be made alone. A uniform number in [-1, 1) is the upper 24
// bits, read as k / 2^23 - 1: exact in float32.
//
// By role (the recipe for torchtitan's graphs):
//   parameter   uniform, scaled by a power of two to a standard deviation near 1/sqrt(16 * last extent)
//               (embeddings: near 1); `*norm*.weight` of one dimension: 1 + u/8. Rounded to the dtype. A rank
//               holds its shard of one global tensor (below)
//   buffer      zeros; `*.rope.cache`: exp(i * t / 10000^(j/n)), or its cosines and sines
//   tokens      uniform below the vocabulary (rows of the parameter that is named `*embed*`), keyed by the
//   labels      coordinate on the mesh axis "batch" (else the rank); labels are the tokens one place on
//   global_valid_tokens   tokens of all batch coordinates together
//   positions   i modulo the document length (info.options.ctx, else 256)
//   attention_masks._closure_0, _1   document of each row; first row of each document
//   attention_masks.{full_,}{kv,q}_{num_blocks,indices}   as torch's create_block_mask: the mask function of
//               the FlexAttention call that takes the tables, evaluated on all pairs
//   meshes, and other values known when traced: as recorded
// An input that none of these makes is refused by name.
//
// Shards: a local extent that is 1/k of the global one (`global_shape`) is cut along the mesh axes in the
// input entry after it (`device_mesh`), whose extents multiply to k: the last axis outermost, as FSDP cuts
// what another axis has cut before (torch's _StridedShard). Where several axes could be meant, the assignment
// of axes to dimensions in order of both is taken; where none fits (uneven shards), the input is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "replay/executor.h"
#include "replay/groups.h"

namespace epweave::replay {

// The generator; exposed for tests.
std::uint64_t random_bits(std::uint64_t seed, std::string_view key, std::uint64_t index);
double random_uniform(std::uint64_t seed, std::string_view key, std::uint64_t index);  // in [-1, 1)

// What floating-point parameters and inputs hold: uniform numbers as above, or integers from -2 to 2 (gains:
// 1), so that sums and products of a few are exact in whatever order they are taken.
enum class DataKind : std::uint8_t { kReal, kInteger };
struct InputData {
  InputData(std::uint64_t from_seed, DataKind of_kind = DataKind::kReal) : seed(from_seed), kind(of_kind) {}
  std::uint64_t seed;
  DataKind kind;
};

// Inputs of all ranks. Throws InputError naming the input that cannot be made.
std::vector<RankInputs> make_inputs(const Graph& graph, const World& world, const KernelTable& kernels,
                                    InputData data);

// One rank's loss where every token is as likely as any other, about what a model gives before training:
// ln(vocabulary) / batch coordinates, since a rank sums its own tokens' losses and divides by all tokens.
// None where the graph does not tell its vocabulary.
std::optional<double> find_expected_loss(const Graph& graph, const World& world);

}  // namespace epweave::replay
