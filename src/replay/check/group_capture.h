// Where the values of one group differ on one rank: both graphs are run once more, and the values
// are copied as they are made.
#pragma once

#include <vector>

#include "replay/check/check_report.h"
#include "replay/run/executor.h"
#include "replay/run/pairing.h"

namespace epweave::replay {

class GroupCapture {
 public:
  GroupCapture(const Group& group, Rank rank)
      : group_(group), rank_(rank), whole_(1), values_(group.values.size()) {}

  // For the runs of A and B. Must not outlive this.
  Observer observe_a() { return observe({group_.whole}, whole_); }
  Observer observe_b() { return observe(group_.values, values_); }

  // Index, bits and distance of the first element that differs, and the part that holds it. Nothing
  // where values were not seen.
  void locate(NodeCheck& found);

 private:
  Observer observe(const std::vector<NodeId>& nodes, std::vector<Tensor>& to);

  const Group& group_;
  Rank rank_;
  HostMemory memory_;
  std::vector<Tensor> whole_, values_;
};

}  // namespace epweave::replay
