// Random training steps, forward and backward, that the passes must take or refuse: a few modules
// `layers.K.moe` (token routing, two exchanges, experts) or `layers.K.feed_forward`, with random
// operations between their fixed points, attention, and what training has around them: an
// embedding, residuals, gradients of weights summed over tokens and over ranks, buffers updated in
// place. Tokens are [u0], or a grid [u0, 3] or [3, u0] whose rows modules merge, or [2*u0] that two
// ranks share, whose rows modules gather and scatter.
//
// Every graph satisfies all invariants (analysis/verify.h), and executes: numbers stay moderate,
// indices in range. The gradients are not those of the forward pass: the backward pass is random
// code of the same shape. Few graphs are refused as a whole; some are refused on purpose, by a call
// that has no parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epweave {

struct RandomStep {
  Graph graph;
  std::uint32_t world = 2;   // ranks
  std::int64_t tokens = 48;  // of each rank: what the symbol u0 stands for
  bool has_exchange = false;
  bool has_attention = false;
  bool has_dropout = false;        // no replay of it
  bool crosses_documents = false;  // its tokens attend to some of other parts, wherever these are cut
  bool divides_sequence = false;   // its inputs are [3, u0]: chunk{dim=seq}
};

// The same step for the same seed on every machine. A layer has about 70 nodes. With a given number
// of layers it holds little that chunk refuses: of thousands of layers one would always have some.
RandomStep make_random_step(std::uint64_t seed, std::optional<std::size_t> layers = {});

}  // namespace epweave
