// Upper bounds of numbers that a graph computes: how many rows an expert gets.
//
//   u4 range=[0, 3072]   u5 range=[0, 3072] asserts=[Eq(u4 + u5, 3*u0)]      of 1024 tokens
//   u4 range=[0, 1536]   u5 range=[0, 1536] asserts=[Eq(u4 + u5, 3*u0)]      of 512
#pragma once

#include <cstdint>
#include <unordered_map>

#include "ir/graph.h"

namespace epweave {

// `sums`: for parts of a sum that scales, what it was. The bound of such a part that was no less
// than the sum scales with it. The bounds of other parts and of extents grow where the size
// grows, and stay where it shrinks: they are no narrower than what holds. Symbols that are neither
// (a rank's coordinate) keep theirs. `done`: symbols that are left alone.
void set_count_bounds(Graph& graph, const std::unordered_map<StringId, std::int64_t>& sums,
                      const IdSet<StringId>& done, std::int64_t before, std::int64_t after);

}  // namespace epweave
