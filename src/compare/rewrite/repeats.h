// Calls that B computes more than once: what backward computes again (recompute), or a half of a
// partition.
//
//   A: %silu = silu(%mm)          B: %silu = silu(%mm); ..; %silu_recomputed = silu(%mm)    body, part 0 of 1, of %silu
//   A': %silu = silu(%mm)         B': %silu_recomputed is %silu_repeat of A'
//       %silu_repeat = silu(%mm)
//
// A' is A with each such call done again right behind the original, on what is done again, too.
// That changes no value: the call draws nothing, has no effect, binds no symbol, and writes only
// storage that is made again with all earlier writes to it (zeros_like, then scatter_), each as
// often as the storage. So B is a rewrite of A if it is one of A', where each claim stands for one
// node. What is moved in twice, as by a bucket of forward and one of backward, is done again, too.
// Where B computes some parts of a call again and not the others, B' computes those again, too, and
// nothing takes them: the call neither writes nor sees what is written.
// A copy whose original B has not is that original. Other calls keep their claims, and are
// refused as done twice.
#pragma once

#include <optional>
#include <utility>

#include "ir/graph.h"

namespace epweave {

struct RepeatedGraphs {
  Graph a, b;
  IdVector<NodeId, NodeId> original;  // of a node of A' that repeats another: that one
};

// None where B computes nothing again.
std::optional<RepeatedGraphs> write_repeats(const Graph& a, const Graph& b);

}  // namespace epweave
