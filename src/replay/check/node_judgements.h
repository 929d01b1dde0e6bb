// The first verdicts of a check (check.h): what hashes tell of each group of nodes, on one rank.
// Where a regrouped sum is behind a value its bound decides (bound_plan.h); in native math, which
// algorithm the library took (library_changes.h).
#pragma once

#include <string>
#include <vector>

#include "replay/run/pairing.h"
#include "replay/run/watch_values.h"

namespace epweave::replay {

struct GroupJudgement {
  Judgement judgement;
  std::string skipped;  // why there is none
};
using Judgements = std::vector<GroupJudgement>;  // by group

// Asks for what is to be remembered, before the graphs run.
void ask_for_slices(const PairedGraphs& graphs, Watcher& seen_a, Watcher& seen_b);

struct Watchers {
  const Watcher& a;
  const Watcher& b;
};
Judgements judge_groups(const PairedGraphs& graphs, const Watchers& seen, Rank rank);

// A value that may differ by right where a regrouped sum is behind it.
bool needs_bound(const Judgement& judgement);

}  // namespace epweave::replay
