#include "passes/schedule/inductor_candidates.h"

#include <algorithm>
#include <compare>
#include <utility>

namespace epweave {

// The least is tried first. No two are equal.
struct InductorCandidates::Rank {
  int urgency = 0;
  std::uint32_t needed_by = 0;
  double not_hidden = 0;  // negative: how much of it the node could hide
  Place start = kNoPlace;
  std::uint32_t collective = 0;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

InductorCandidates::InductorCandidates(const InductorFacts& facts, std::size_t groups,
                                       const InductorKnobs& knobs)
    : facts_(facts), knobs_(knobs), active_(groups) {
  for (std::uint32_t c = 0; c < facts_.collectives.size(); ++c) {
    if (facts_.needed_by[facts_.collectives[c].start] == kNeverNeeded) {
      active_[facts_.collectives[c].group].insert(c);
    } else {
      by_need_.push_back(c);
    }
  }
  std::ranges::sort(by_need_, {}, [&](std::uint32_t c) {
    return std::pair(facts_.needed_by[facts_.collectives[c].start], c);
  });
}

void InductorCandidates::set_done(std::uint32_t computes_done, const InductorFlight& flight) {
  computes_done_ = computes_done;
  for (; next_by_need_ < by_need_.size(); ++next_by_need_) {
    const std::uint32_t c = by_need_[next_by_need_];
    const std::int64_t distance =
        std::int64_t{facts_.needed_by[facts_.collectives[c].start]} - std::int64_t{computes_done};
    if (distance > knobs_.max_compute_pre_fetch) return;
    if (!flight[c].is_started) active_[facts_.collectives[c].group].insert(c);
  }
}

std::vector<std::uint32_t> InductorCandidates::list(const InductorFlight& flight,
                                                    const InductorFlight::Credit& credit,
                                                    std::uint32_t excluded) const {
  using Each = std::set<std::uint32_t>::const_iterator;
  std::vector<std::pair<Each, Each>> lists;
  for (std::uint32_t group = 0; group < active_.size(); ++group)
    if (group != excluded && credit[group] > 0 && !active_[group].empty())
      lists.emplace_back(active_[group].begin(), active_[group].end());
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(knobs_.max_coll_distance, 1));
  std::vector<Rank> ranks;
  while (!lists.empty() && ranks.size() < most) {
    auto least = std::ranges::min_element(lists, {}, [](const auto& list) { return *list.first; });
    const std::uint32_t c = *least->first;
    ranks.push_back(rank(c, flight[c].exposed, credit[facts_.collectives[c].group]));
    if (++least->first == least->second) lists.erase(least);
  }
  std::ranges::sort(ranks, [](const Rank& a, const Rank& b) { return a < b; });
  std::vector<std::uint32_t> collectives;
  for (const Rank& rank : ranks) collectives.push_back(rank.collective);
  if (knobs_.groups_by_bucket) group_by_key(collectives);
  return collectives;
}

InductorCandidates::Rank InductorCandidates::rank(std::uint32_t collective, double exposed,
                                                  double credit) const {
  const Place start = facts_.collectives[collective].start;
  const std::uint32_t needed_by = facts_.needed_by[start];
  int urgency = 2;
  if (needed_by == computes_done_ + 1) {
    urgency = 0;
  } else if (needed_by == kNeverNeeded) {
    urgency = facts_.is_needed_by_scatter[start] ? 1 : 3;
  }
  return {urgency, needed_by, -std::min(credit, exposed), start, collective};
}

// Those of one key together, where the first of them stands.
void InductorCandidates::group_by_key(std::vector<std::uint32_t>& collectives) const {
  std::vector<std::uint32_t> first(facts_.keys, kNoPlace);
  for (std::uint32_t i = 0; i < collectives.size(); ++i) {
    std::uint32_t& at = first[facts_.collectives[collectives[i]].key];
    at = std::min(at, i);
  }
  std::ranges::stable_sort(collectives, {},
                           [&](std::uint32_t c) { return first[facts_.collectives[c].key]; });
}

}  // namespace epweave
