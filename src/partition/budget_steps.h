// Cuts for shares of memory, from most bytes to fewest, of which each next has no larger peak than
// the one before.
//
// Fewer bytes between forward and backward are not always less memory: what backward computes again
// is alive there, and where little is saved, that is most of forward at once. So a step down that
// would raise the peak is not taken, and what was found before it stays. Bytes, seconds and peak
// are monotone in the share by construction.
#pragma once

#include <cstdint>
#include <functional>

#include "partition/exact_cut.h"

namespace epweave {

inline constexpr int kBudgetSteps = 20;  // from the fastest cut's bytes to none

// The peak in bytes of what a cut gives.
using MeasurePeak = std::function<std::int64_t(const BudgetCut&)>;

struct BudgetStep {
  BudgetCut cut;
  std::int64_t peak_bytes = 0;
  bool is_held = false;  // fewer bytes were looked at, and would have raised the peak
};

// Walks down until `is_enough` or all steps are done. It is asked behind each step, from 0, about
// what is held there.
BudgetStep walk_budgets(ExactCuts& cuts, const MeasurePeak& measure,
                        const std::function<bool(int, const BudgetStep&)>& is_enough);

// The same in finer steps between two that it held, one after the other, until `is_enough`. None of
// these steps leaves the order that the two have.
inline constexpr int kFineSteps = 16;
BudgetStep walk_between(ExactCuts& cuts, const BudgetStep& from, const BudgetStep& to,
                        const MeasurePeak& measure, const std::function<bool(const BudgetStep&)>& is_enough);

// The cut for a share from 0 to 1 of the bytes of the fastest; shares count in steps of 1/20,
// downwards.
BudgetStep cut_for_share(ExactCuts& cuts, double share, const MeasurePeak& measure);

}  // namespace epweave
