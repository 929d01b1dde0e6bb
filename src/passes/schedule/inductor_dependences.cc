#include "passes/schedule/inductor_dependences.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace epweave {
namespace {

bool contains(std::span<const Place> places, Place place) {
  return std::ranges::find(places, place) != places.end();
}
void insert(std::vector<Place>& places, Place place) {
  if (!contains(places, place)) places.push_back(place);
}
void erase(std::vector<Place>& places, Place place) {
  std::erase(places, place);
}

}  // namespace

InductorDependences::InductorDependences(const PlaceLists& inputs, Reaches reaches)
    : inputs_(inputs),
      reaches_(std::move(reaches)),
      before_(inputs.size()),
      after_(inputs.size()),
      set_of_(inputs.size()),
      sets_(inputs.size()),
      seen_(inputs.size()) {
  std::iota(set_of_.begin(), set_of_.end(), 0);
  for (Place i = 0; i < inputs.size(); ++i) sets_[i] = {i};
}

void InductorDependences::add(Place after, Place before) {
  insert(before_[after], before);
  insert(after_[before], after);
}

void InductorDependences::remove(Place after, Place before) {
  erase(before_[after], before);
  erase(after_[before], after);
}

void InductorDependences::merge(Place existing, Place alone) {
  EPWEAVE_CHECK(sets_[set_of_[alone]].size() == 1);
  sets_[set_of_[alone]].clear();
  set_of_[alone] = set_of_[existing];
  sets_[set_of_[existing]].push_back(alone);
}

void InductorDependences::separate(Place node) {
  std::vector<Place>& old = sets_[set_of_[node]];
  if (old.size() == 1) return;
  erase(old, node);
  set_of_[node] = static_cast<std::uint32_t>(sets_.size());
  sets_.push_back({node});
}

// From `to` backwards. What the step needs for `from` cannot come behind it.
bool InductorDependences::has_path(Place from, Place to) {
  const std::span<const Place> wanted = sets_[set_of_[from]];
  EPWEAVE_CHECK(set_of_[from] != set_of_[to]);
  ++epoch_;
  std::vector<Place> stack{to};
  seen_[to] = epoch_;
  bool is_found = false;
  const auto visit = [&](Place dependence) {
    if (is_found || set_of_[dependence] == set_of_[from]) {
      is_found = true;
    } else if (std::exchange(seen_[dependence], epoch_) != epoch_ && !leads_to(dependence, wanted)) {
      stack.push_back(dependence);
    }
  };
  while (!stack.empty() && !is_found) {
    const Place at = stack.back();
    stack.pop_back();
    for (const Place one : sets_[set_of_[at]]) {
      for (const Place input : inputs_[one]) visit(input);
      for (const Place added : before_[one]) visit(added);
    }
  }
  return is_found;
}

bool InductorDependences::leads_to(Place node, std::span<const Place> merged) const {
  return std::ranges::any_of(merged, [&](Place one) { return reaches_(node, one); });
}

Place InductorDependences::add_node() {
  const auto place = static_cast<Place>(before_.size());
  before_.emplace_back();
  after_.emplace_back();
  return place;
}

void InductorDependences::transfer(std::span<const std::pair<Place, Place>> replaced, const Takes& takes) {
  std::vector<std::pair<Place, Place>> all;
  std::map<Place, Place> by;
  for (const auto& [old, now] : replaced)
    for (const Place one : sets_[set_of_[old]]) {
      if (by.emplace(one, now).second)
        all.emplace_back(one, now);
      else
        by[one] = now;
    }
  for (auto& [old, now] : all) now = by.at(old);
  const auto current = [&](Place place) {
    const auto found = by.find(place);
    return found == by.end() ? place : found->second;
  };
  for (const auto& [old, now] : all) {
    for (const Place dependence : before_[old]) {
      const Place with = current(dependence);
      if (with == now || contains(before_[with], now) || takes(with, now)) continue;
      insert(before_[now], with);
      erase(after_[with], old);
      insert(after_[with], now);
    }
    for (const Place user : after_[old]) {
      const Place with = current(user);
      if (with == now || contains(before_[now], with) || takes(now, with)) continue;
      erase(before_[with], old);
      insert(before_[with], now);
      insert(after_[now], with);
    }
  }
  for (const auto& each : all) {
    before_[each.first].clear();
    after_[each.first].clear();
  }
}

}  // namespace epweave
