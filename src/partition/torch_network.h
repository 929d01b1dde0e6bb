// PyTorch's network of a graph's values under some of its bans, and the cut of least weight
// (solve_min_cut).
#pragma once

#include <cstdint>

#include "partition/torch_facts.h"

namespace epweave {

// What may not be computed again, from most to least.
enum class TorchBans : std::uint8_t {
  kAll,
  kListed,  // whatever it costs backward to have it in memory, and how far apart it is used
  kHeavy,   // only draws, what is compute-intensive, and what is small beside its operands
};

// PyTorch's unit of bytes.
constexpr double kTorchUnit = 1e9;

struct TorchSolution {
  Cut cut;
  double size = 0;  // of what is saved, inputs too, in that unit and as PyTorch adds: whoever shares storage
  IdSet<NodeId> banned;
};

// `freed`: what the bans forbid, and may be computed again all the same. Throws PassError
// partition.cut where there is no cut.
TorchSolution solve_torch_network(TorchFacts& facts, TorchBans bans, const IdSet<NodeId>* freed = nullptr);

}  // namespace epweave
