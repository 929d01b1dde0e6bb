#include "partition/budget_steps.h"

#include <algorithm>
#include <cmath>

namespace epweave {
namespace {

constexpr double kNearlyAStep = 1e-9;  // 0.35 * 20 is a step, whatever its last bit

bool is_further(const BudgetStep& held, const BudgetStep& next) {
  return next.cut.totals.bytes <= held.cut.totals.bytes &&
         next.cut.totals.seconds >= held.cut.totals.seconds && next.peak_bytes <= held.peak_bytes;
}

}  // namespace

BudgetStep walk_budgets(ExactCuts& cuts, const MeasurePeak& measure,
                        const std::function<bool(int, const BudgetStep&)>& is_enough) {
  const std::int64_t most = cuts.fastest().totals.bytes, least = cuts.smallest().totals.bytes;
  BudgetStep held{.cut = cuts.cut_within(std::max(most, least))};
  held.peak_bytes = measure(held.cut);
  for (int step = 1; step <= kBudgetSteps && !is_enough(step - 1, held); ++step) {
    const std::int64_t bytes = std::max(most * (kBudgetSteps - step) / kBudgetSteps, least);
    if (held.cut.totals.bytes <= bytes) continue;
    BudgetStep next{.cut = cuts.cut_within(bytes)};
    next.peak_bytes = measure(next.cut);
    held.is_held = !is_further(held, next);
    if (!held.is_held) held = std::move(next);
  }
  return held;
}

BudgetStep walk_between(ExactCuts& cuts, const BudgetStep& from, const BudgetStep& to,
                        const MeasurePeak& measure, const std::function<bool(const BudgetStep&)>& is_enough) {
  BudgetStep held = from;
  const std::int64_t most = from.cut.totals.bytes, least = to.cut.totals.bytes;
  for (int step = 1; step < kFineSteps && !is_enough(held); ++step) {
    const std::int64_t bytes = most - (most - least) * step / kFineSteps;
    if (held.cut.totals.bytes <= bytes) continue;
    BudgetStep next{.cut = cuts.cut_within(bytes)};
    next.peak_bytes = measure(next.cut);
    if (is_further(held, next) && is_further(next, to)) held = std::move(next);
  }
  return held;
}

BudgetStep cut_for_share(ExactCuts& cuts, double share, const MeasurePeak& measure) {
  const int steps = static_cast<int>(std::ceil((1 - share) * kBudgetSteps - kNearlyAStep));
  return walk_budgets(cuts, measure, [&](int step, const BudgetStep&) { return step >= steps; });
}

}  // namespace epweave
