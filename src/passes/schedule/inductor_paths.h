// What still stands between PyTorch's overlap scheduler and a collective that it would start ahead.
//
//   y = mm(x, x)   c = cast(p)   g = all_gather(c)   w = wait(g)      under y: the path to g is c
//
// A path is neither compute nor communication that is not done, and does not go through the node
// that is to hide the collective.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "passes/schedule/inductor_facts.h"
#include "passes/schedule/inductor_flight.h"
#include "passes/schedule/schedule_problem.h"

namespace epweave {

class InductorPaths {
 public:
  // All must outlive this; the two that change are read as they are at each call. `is_scheduled`:
  // by place.
  InductorPaths(const ScheduleProblem& problem, const InductorFacts& facts, const InductorFlight& flight,
                const std::vector<bool>& is_scheduled)
      : p_(problem), f_(facts), flight_(flight), is_scheduled_(is_scheduled), seen_at_(problem.size()) {}

  // What `start` needs that is not scheduled, in the order of the body, to be scheduled under
  // `node`; none: there is no path.
  std::optional<std::vector<Place>> find(Place node, Place start);

 private:
  bool may_be_on_path(Place node, Place i) const;

  const ScheduleProblem& p_;
  const InductorFacts& f_;
  const InductorFlight& flight_;
  const std::vector<bool>& is_scheduled_;
  std::uint32_t epoch_ = 0;
  std::vector<std::uint32_t> seen_at_;
  std::vector<Place> stack_;
};

// What must execute behind a node, up to a place; found once for all that is asked of the same node
// in a row.
class InductorFollowers {
 public:
  explicit InductorFollowers(const PlaceLists& users) : users_(users), seen_at_(users.size()) {}

  bool has(Place place, Place node, Place last) {
    if (node_ != node || last_ != last) find(node, last);
    return seen_at_[place] == epoch_;
  }

 private:
  void find(Place node, Place last);

  const PlaceLists& users_;
  Place node_ = kNoPlace, last_ = kNoPlace;
  std::uint32_t epoch_ = 0;
  std::vector<std::uint32_t> seen_at_;
  std::vector<Place> stack_;
};

}  // namespace epweave
