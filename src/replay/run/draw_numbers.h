// What the random calls of a step draw on a rank: by the rank, and by how many calls of the graph's
// order draw before. Two graphs that draw in the same order draw the same, in whatever order their
// steps are issued.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "analysis/world.h"
#include "ir/graph.h"
#include "replay/values/random_numbers.h"

namespace epweave::replay {

class DrawNumbers {
 public:
  DrawNumbers(const Body& body, Rank rank);

  // Of a call of the body whose op is random.
  std::uint64_t find(NodeId id) const { return numbers_.bits(places_.at(id.index())); }

 private:
  RandomNumbers numbers_;
  std::unordered_map<std::uint32_t, std::uint64_t> places_;  // by node: draws before it
};

}  // namespace epweave::replay
