// Where storage is written, by places in the order. What a wait completes is no write.
//
//   0: h = relu(x)   1: v = view(h)   2: add_(v, 1)   3: g = mul(h, h)      the storage of h: at 2
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "analysis/collectives.h"
#include "analysis/effects.h"

namespace epweave {

class WritePlaces {
 public:
  WritePlaces(const Graph& graph, const Body& body) : effects_(graph, body) {
    for (std::uint32_t place = 0; place < body.order.size(); ++place) {
      const NodeId id = body.order[place];
      if (is_wait(body.nodes[id])) continue;
      for (const StorageAccess& access : effects_.accesses_of(id))
        if (access.writes) places_.at(access.storage).push_back(place);
    }
  }

  const Effects& effects() const { return effects_; }
  std::span<const std::uint32_t> of(NodeId storage) const { return places_[storage]; }

  // Whether the storage is written behind `after` and before `before`.
  bool any(NodeId storage, std::uint32_t after, std::uint32_t before) const {
    const std::vector<std::uint32_t>& places = places_[storage];
    const auto found = std::ranges::upper_bound(places, after);
    return found != places.end() && *found < before;
  }

 private:
  Effects effects_;
  SideTable<NodeId, std::vector<std::uint32_t>> places_;
};

}  // namespace epweave
