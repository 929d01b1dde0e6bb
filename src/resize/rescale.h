// Another number for an extent that is a number in the graph, and for all that scale with it.
//
//   before  %x : [8]   %e = embedding(%w, %x) : [8, 4]   %p = split_with_sizes(%e, [4, 4])
//   after   %x : [6]   %e = embedding(%w, %x) : [6, 4]   %p = split_with_sizes(%e, [3, 3])
//
// Which extents and arguments scale is inferred from the shape rules (placement/scaling/scaling.h).
// What nothing reaches stays as it is; where that is wrong, a type rule says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "placement/scaling/scaling.h"

namespace epweave {

struct SizeChange {
  std::string name;  // as the user set it
  std::int64_t before = 0, after = 0;
};

// `inputs` have the size, or a share of it. Throws PassError "resize.size" where an extent would be
// no whole number, "resize.conflict" where one would be two numbers, "resize.type" where a call
// does not accept the new sizes.
Graph rescale(const Graph& graph, const std::vector<TokenInput>& inputs, ScalingOptions options,
              const SizeChange& change);

}  // namespace epweave
