#include "partition/knapsack.h"

#include <algorithm>
#include <cmath>

namespace epweave {
namespace {

constexpr double kSteps = 10'000;

}  // namespace

std::vector<std::uint8_t> fill_knapsack(const std::vector<KnapsackItem>& items, double capacity) {
  const auto quantize = [](double share) { return static_cast<std::size_t>(std::nearbyint(share * kSteps)); };
  const std::size_t most = quantize(capacity), columns = most + 1;
  std::vector<float> best(columns), next(columns);
  std::vector<bool> is_better(items.size() * columns);  // with the item, by item and weight
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::size_t weight = quantize(items[i].weight);
    const auto worth = static_cast<float>(items[i].worth);
    next = best;
    for (std::size_t at = weight; at < columns; ++at) {
      const float with = best[at - weight] + worth;
      next[at] = weight == 0 ? with : std::max(best[at], with);
      is_better[i * columns + at] = next[at] != best[at];
    }
    best.swap(next);
  }
  std::vector<std::uint8_t> is_kept(items.size());
  std::size_t left = most;
  for (std::size_t i = items.size(); i-- > 0;) {
    if (!is_better[i * columns + left]) continue;
    is_kept[i] = 1;
    left -= quantize(items[i].weight);
  }
  return is_kept;
}

}  // namespace epweave
