#include "passes/schedule/inductor_budget.h"

#include <algorithm>

namespace epweave {

InductorBudget::InductorBudget(InductorMemory memory, const InductorFacts& facts, const InductorKnobs& knobs)
    : facts_(facts), max_ahead_(knobs.max_in_flight_bytes), ahead_(facts.computes) {
  std::int64_t most = 0;
  for (Place i = 0; i < facts_.roles.size(); ++i) {
    memory.place(i);
    given_peak_ = std::max(given_peak_, memory.live());
    most = std::max(most, memory.live());
    if (facts_.roles[i] != InductorRole::kCompute) continue;
    given_live_.push_back(most);
    most = memory.live();
  }
  const auto& bytes = knobs.max_memory_increase_bytes;
  const auto& ratio = knobs.max_memory_increase_ratio;
  if (!bytes && !ratio) return;
  const auto share = static_cast<std::int64_t>(static_cast<double>(given_peak_) * ratio.value_or(0));
  limit_ = given_peak_ + std::max(bytes.value_or(0), share);
}

bool InductorBudget::would_exceed(const InductorCollective& collective, std::uint32_t computes_done,
                                  std::int64_t live) const {
  const std::uint32_t needed_by = facts_.needed_by[collective.start];
  if (needed_by == kNeverNeeded) return false;
  if (is_exceeded(live + collective.bytes)) return true;
  if (needed_by <= computes_done) return false;
  std::int64_t most_ahead = 0, most_live = 0;
  for (std::uint32_t i = computes_done; i < needed_by; ++i) {
    most_ahead = std::max(most_ahead, ahead_[i]);
    most_live = std::max(most_live, given_live_[i] + ahead_[i]);
  }
  return most_ahead + collective.bytes > max_ahead_ || is_exceeded(most_live + collective.bytes);
}

void InductorBudget::add(const InductorCollective& collective, std::uint32_t computes_done) {
  const std::uint32_t needed_by = facts_.needed_by[collective.start];
  if (needed_by == kNeverNeeded) return;
  for (std::uint32_t i = computes_done; i < needed_by; ++i) ahead_[i] += collective.bytes;
}

}  // namespace epweave
