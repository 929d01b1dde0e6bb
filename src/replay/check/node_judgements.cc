#include "replay/check/node_judgements.h"

#include "ops/traffic.h"

namespace epweave::replay {
namespace {

GroupJudgement judge_group(const PairedGraphs& graphs, const Watchers& seen, Rank rank, const Group& group) {
  GroupJudgement result;
  const Seen& whole = seen.a.at(rank, group.whole);
  std::vector<const Seen*> values;
  bool is_complete = whole.kind != Seen::Kind::kNothing;
  for (NodeId value : group.values) {
    if (!value) result.skipped = "a part is missing";
    is_complete = is_complete && value && seen.b.at(rank, value).kind != Seen::Kind::kNothing;
    if (is_complete) values.push_back(&seen.b.at(rank, value));
  }
  if (!result.skipped.empty()) return result;
  if (!is_complete)
    result.skipped = "no value of its own: a tuple, text, or a collective not waited for";
  else if (leaves_some_unset(graphs.a.step().nodes[group.whole]))
    result.judgement = {Verdict::kUnverified, "memory that is not written yet", false};
  else
    result.judgement = judge(whole, values, group);
  return result;
}

}  // namespace

void ask_for_slices(const PairedGraphs& graphs, Watcher& seen_a, Watcher& seen_b) {
  for (const Group& group : graphs.groups) {
    if (!group.is_parts) continue;
    const Dimensions dimensions = find_cut_dimensions(graphs.a, graphs.b, group);
    seen_a.slice(group.whole, dimensions);
    for (NodeId value : group.values)
      if (value) seen_b.slice(value, dimensions);
  }
}

Judgements judge_groups(const PairedGraphs& graphs, const Watchers& seen, Rank rank) {
  Judgements judgements;
  for (const Group& group : graphs.groups) judgements.push_back(judge_group(graphs, seen, rank, group));
  return judgements;
}

bool needs_bound(const Judgement& judgement) {
  return judgement.verdict == Verdict::kDiffers || (judgement.is_sum && judgement.verdict != Verdict::kEqual);
}

}  // namespace epweave::replay
