// Whether the regions of a graph can be scheduled: the parts of each are there, each token exchange
// has one wait in its part, and all parts exchange tokens in the same order.
//
// Refusals: S-2, S-3, S-5 to S-8 (docs/differences.md).
#pragma once

#include <vector>

#include "analysis/ep_regions.h"
#include "analysis/users.h"

namespace epweave {

struct WaitLabel {
  NodeId wait;
  StringId label;
};

class ExchangeChecker {
 public:
  // `users` are list_users of the step; both are kept by reference.
  ExchangeChecker(const Graph& graph, const NodeLists& users)
      : graph_(graph), body_(graph.step()), users_(users) {}

  // The labels that the region's waits are to have; none if the region has no exchanges. Throws
  // PassError.
  std::vector<WaitLabel> check(const EpRegion& region);

 private:
  void check_part(const EpPart& part, std::vector<WaitLabel>& labels);
  bool is_in_part(NodeId id) const { return part_of_[id] == current_part_; }
  bool waits_for_exchange(NodeId id) const;
  NodeId find_wait(NodeId launch) const;

  const Graph& graph_;
  const Body& body_;
  const NodeLists& users_;
  SideTable<NodeId, std::uint32_t> part_of_;  // the parts checked so far, numbered from 1
  std::uint32_t current_part_ = 0;
};

}  // namespace epweave
