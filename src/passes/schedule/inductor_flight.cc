#include "passes/schedule/inductor_flight.h"

#include <algorithm>

namespace epweave {

InductorFlight::InductorFlight(const InductorFacts& facts, std::size_t groups, bool discounts_latency)
    : facts_(facts),
      discounts_latency_(discounts_latency),
      states_(facts.collectives.size()),
      has_collective_(groups),
      of_group_(groups) {
  for (std::uint32_t c = 0; c < states_.size(); ++c) {
    states_[c].exposed = facts_.collectives[c].ms;
    has_collective_[facts_.collectives[c].group] = true;
  }
}

std::optional<std::uint32_t> InductorFlight::find_oldest() const {
  return first_in_flight_ < in_flight_.size() ? std::optional(in_flight_[first_in_flight_]) : std::nullopt;
}

std::vector<std::uint32_t> InductorFlight::list_in_front_of(std::uint32_t collective) const {
  const auto& queue = of_group_[facts_.collectives[collective].group];
  return {queue.begin(), std::ranges::find(queue, collective)};
}

void InductorFlight::start(std::uint32_t c) {
  const InductorCollective& collective = facts_.collectives[c];
  State& state = states_[c];
  if (collective.bucket != kNoBucketKey && of_bucket_[collective.bucket]++ > 0 && discounts_latency_)
    state.exposed = std::max(0.0, state.exposed - collective.latency_ms);
  state.is_started = state.is_in_flight = true;
  bytes_ += collective.bytes;
  in_flight_.push_back(c);
  of_group_[collective.group].push_back(c);
  if (state.exposed != 0) exposed_.push_back(c);
}

void InductorFlight::land(std::uint32_t c) {
  const InductorCollective& collective = facts_.collectives[c];
  states_[c].is_in_flight = false;
  bytes_ -= collective.bytes;
  if (collective.bucket != kNoBucketKey) --of_bucket_[collective.bucket];
  auto& queue = of_group_[collective.group];
  queue.erase(std::ranges::find(queue, c));
  while (first_in_flight_ < in_flight_.size() && !states_[in_flight_[first_in_flight_]].is_in_flight)
    ++first_in_flight_;
}

InductorFlight::Credit InductorFlight::hide(Place node, double ms, std::uint32_t excluded) {
  Credit credit(has_collective_.size(), 0.0);
  for (std::uint32_t group = 0; group < credit.size(); ++group)
    if (has_collective_[group] && group != excluded) credit[group] = ms;
  std::erase_if(exposed_,
                [&](std::uint32_t c) { return !states_[c].is_in_flight || states_[c].exposed == 0; });
  for (const std::uint32_t c : exposed_)
    if (!states_[c].is_being_waited && credit[facts_.collectives[c].group] > 0) hide_one(c, node, credit);
  return credit;
}

void InductorFlight::hide_one(std::uint32_t collective, Place node, Credit& credit) {
  State& state = states_[collective];
  double& left = credit[facts_.collectives[collective].group];
  const double hidden = std::min(state.exposed, left);
  state.exposed -= hidden;
  left -= hidden;
  state.hidden_by.push_back(node);
}

bool InductorFlight::is_hidden(std::uint32_t collective, Place node) const {
  const std::vector<Place>& by = states_[collective].hidden_by;
  return states_[collective].exposed == 0 && std::ranges::find(by, node) == by.end();
}

bool InductorFlight::would_wait_twice(std::uint32_t collective) const {
  if (states_[collective].is_being_waited) return true;
  if (!states_[collective].is_in_flight) return false;
  return std::ranges::any_of(list_in_front_of(collective),
                             [&](std::uint32_t prior) { return states_[prior].is_being_waited; });
}

}  // namespace epweave
