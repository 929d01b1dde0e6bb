#include "passes/schedule/inductor_reach.h"

namespace epweave {

InductorReach::InductorReach(const PlaceLists& inputs, const InductorFacts& facts, const InductorOrder& order)
    : column_(inputs.size(), kNoPlace) {
  std::vector<std::vector<Place>> hidden(inputs.size());  // by place: what else needs it
  for (std::uint32_t c = 0; c < facts.collectives.size(); ++c) {
    const InductorCollective& collective = facts.collectives[c];
    add_column(collective.start);
    add_column(collective.wait);
    for (const Place by : order.hiding[c].hidden_by) {
      add_column(by);
      if (order.hiding[c].exposed != 0) continue;
      hidden[collective.start].push_back(by);
      hidden[by].push_back(collective.wait);
    }
  }
  width_ = columns_.size() / 64 + 1;
  words_.resize(inputs.size() * width_);
  const PlaceLists users = invert(inputs);
  for (auto at = order.scheduled.rbegin(); at != order.scheduled.rend(); ++at) {
    for (const Place user : users[*at]) take_over(*at, user);
    for (const Place user : hidden[*at]) take_over(*at, user);
  }
}

void InductorReach::add_column(Place to) {
  if (column_[to] != kNoPlace) return;
  column_[to] = static_cast<std::uint32_t>(columns_.size());
  columns_.push_back(to);
}

// What needs `after` needs `before`, as it does itself.
void InductorReach::take_over(Place before, Place after) {
  for (std::size_t i = 0; i < width_; ++i) words_[before * width_ + i] |= words_[after * width_ + i];
  if (column_[after] == kNoPlace) return;
  words_[before * width_ + column_[after] / 64] |= std::uint64_t{1} << (column_[after] % 64);
}

}  // namespace epweave
