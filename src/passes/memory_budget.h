// Tags for a budget of memory, or of time: memory-policy{policy=budget}.
//
// Exact cuts (partition/exact_cut.h) are made for fewer and fewer bytes, once over the whole step
// and once so that backward of a layer does no other layer again, which keeps less alive. Each is
// tagged, `recompute` runs, and the peak of what comes out is measured as `epweave stats` does,
// inputs included. For a budget of memory the first whose peak fits is taken, which computes least
// again; for a budget of time that of the least peak. What is looked at does not depend on the
// budget, so that a smaller one never gives a larger peak.
//
//   forward calls that the cut computes again   PREFER_RECOMPUTE
//   other forward calls                         MUST_SAVE
//   head and loss                               no tag, as with each policy
#pragma once

#include <optional>

#include "passes/memory_policy.h"

namespace epweave {

struct PolicyBudget {
  std::optional<double> peak_mib;      // or
  std::optional<double> recompute_ms;  // one of the two
  Reshard reshard = Reshard::kAlways;
};

// Throws PassError memory-policy.budget, which states the least peak, where nothing fits.
PassResult tag_for_budget(const Graph& graph, const PolicyBudget& budget);

}  // namespace epweave
