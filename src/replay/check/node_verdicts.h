// The last verdicts of a check (check.h) on the nodes of one rank: the first ones
// (node_judgements.h), and where a regrouped sum is behind a value, that of its bound.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "replay/check/check_report.h"
#include "replay/check/node_judgements.h"
#include "replay/run/pairing.h"

namespace epweave::replay {

struct RankNodes {
  RankCheck counts;
  std::optional<NodeCheck> first;  // in B's order, that differs
  std::size_t group_of_first = 0;
};

class NodeVerdicts {
 public:
  // The graphs must outlive this.
  explicit NodeVerdicts(const PairedGraphs& graphs);

  // The last verdict on a group whose first is not the last.
  using Conclude = std::function<Judgement(const Judgement& first, std::size_t group)>;
  RankNodes judge(Rank rank, const Judgements& first, const Conclude& conclude) const;

 private:
  std::string_view find_other_elements(const Group& group) const;

  const PairedGraphs& graphs_;
  IdVector<NodeId, std::uint32_t> positions_;  // of B
  WrittenStorage written_;                     // of A
  IdSet<NodeId> placed_;                       // of A
};

std::string name_of_whole(const PairedGraphs& graphs, const Group& group);

}  // namespace epweave::replay
