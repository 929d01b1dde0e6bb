#include "replay/check/node_verdicts.h"

#include "analysis/users.h"
#include "replay/check/placed_rows.h"

namespace epweave::replay {

NodeVerdicts::NodeVerdicts(const PairedGraphs& graphs)
    : graphs_(graphs),
      positions_(find_positions(graphs.b.step(), graphs.b.step().order)),
      written_(find_written_storage(graphs.a)),
      placed_(find_placed_rows(graphs)) {}

RankNodes NodeVerdicts::judge(Rank rank, const Judgements& first, const Conclude& conclude) const {
  RankNodes found;
  if (graphs_.unpaired != 0) found.counts.skipped["made by the rewrite"] = graphs_.unpaired;
  for (std::size_t i = 0; i < graphs_.groups.size(); ++i) {
    const Group& group = graphs_.groups[i];
    if (const std::string& skipped = first[i].skipped; !skipped.empty()) {
      ++found.counts.skipped[skipped];
      continue;
    }
    const Judgement judgement =
        needs_bound(first[i].judgement) ? conclude(first[i].judgement, i) : first[i].judgement;
    const std::string_view other_elements = find_other_elements(group);
    if (judgement.verdict == Verdict::kDiffers && !other_elements.empty()) {
      ++found.counts.skipped[std::string(other_elements)];
      continue;
    }
    ++found.counts.nodes[static_cast<std::size_t>(judgement.verdict)];
    if (judgement.verdict == Verdict::kUnverified) ++found.counts.unverified[judgement.reason];
    if (judgement.verdict != Verdict::kDiffers) continue;
    const std::uint64_t position = positions_[group.values[0]];
    if (found.first && found.first->position <= position) continue;
    found.first = NodeCheck{rank,         group.values[0], name_of_whole(graphs_, group), judgement.reason,
                            std::nullopt, position};
    found.group_of_first = i;
  }
  return found;
}

// Why the group may show memory before a write in place where A's node shows it behind, or the
// other way round, or have other rows on this rank; what is made of it is compared. "" if it may
// not.
std::string_view NodeVerdicts::find_other_elements(const Group& group) const {
  if (written_.views.contains(group.whole))
    return "a view of memory that is written in place: its readers are compared";
  if (group.is_copied && written_.all.contains(group.whole))
    return "cut or joined beside a write in place: its readers are compared";
  if (placed_.contains(group.whole))
    return "rows that ranks get by their places, others of a part: what joins the parts is compared";
  return {};
}

std::string name_of_whole(const PairedGraphs& graphs, const Group& group) {
  return std::string(graphs.a.text(graphs.a.step().nodes[group.whole].name));
}

}  // namespace epweave::replay
