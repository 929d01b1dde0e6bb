// The runs of a check (check.h) that follow error bounds, and what they find: of groups of nodes
// that may be regrouped sums, and of outputs behind such.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "replay/check/bound_plan.h"
#include "replay/check/check_runs.h"
#include "replay/check/output_check.h"
#include "replay/check/output_comparison.h"
#include "replay/check/sum_check.h"

namespace epweave::replay {

// How A and B are run once their values are compared.
struct BoundSetup {
  bool has_sums = false;  // some sum was regrouped
  bool makes_bounds = false;
  Device* device_a = nullptr;
  Device* device_b = nullptr;
  Device* bounds_device = nullptr;  // null: the CPU

  // A run without bounds tells whether A gives the same bits twice.
  bool runs_a_again() const { return !makes_bounds || device_a != bounds_device; }
  std::size_t count_runs(const BoundPlan& plan) const {
    return (runs_a_again() ? 1 : 0) + (makes_bounds ? 2 * plan.lots.size() : 0);
  }
};
BoundSetup set_up_bounds(const CheckSetup& setup, const BoundPlan& plan);

// What the runs found.
struct BoundResults {
  BoundResults(const std::vector<Group>& groups, Rank ranks)
      : sums(groups, ranks), outputs(ranks), without_bound(ranks) {}

  SumChecker sums;
  std::vector<BoundedOutputs> outputs;               // by rank
  std::vector<std::set<std::string>> without_bound;  // by rank: targets that regrouped sums went through
};

// The first runs are done: `checks`, by rank here, says which outputs differ. The second run of A
// also tells `outputs` whether A gives the same bits twice, and how far B's are off.
void run_with_bounds(const PairedGraphs& graphs, const BoundSetup& setup, BoundPlan& plan,
                     const std::vector<std::vector<OutputCheck>>& checks, CheckRuns& runs,
                     OutputComparison& outputs, BoundResults& found);

}  // namespace epweave::replay
