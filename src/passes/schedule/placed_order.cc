#include "passes/schedule/placed_order.h"

#include <algorithm>

namespace epweave {

PlacedOrder::PlacedOrder(const ScheduleProblem& problem, const std::vector<std::int64_t>& live,
                         std::int64_t budget)
    : p_(problem),
      budget_(budget),
      is_placed_(problem.size()),
      made_(problem.size()),
      end_(problem.home.size()),
      live_(problem.input_bytes),
      peak_(problem.input_bytes),
      forecast_(live) {
  order_.reserve(p_.size());
  for (std::size_t s = 0; s < p_.home.size(); ++s) {
    end_[s] = static_cast<std::uint32_t>(p_.touchers[s].size());
    made_[p_.home[s]] += p_.bytes[s];
  }
}

void PlacedOrder::begin_with(Place node) {
  is_placed_[node] = 1;
  order_.push_back(node);
}

void PlacedOrder::need(Place node) {
  stack_.push_back(node);
  while (!stack_.empty()) {
    const Place top = stack_.back();
    if (has(top)) {
      stack_.pop_back();
      continue;
    }
    bool is_ready = true;
    const auto inputs = p_.inputs[top];
    for (std::size_t k = inputs.size(); k-- > 0;)
      if (!has(inputs[k])) {
        stack_.push_back(inputs[k]);
        is_ready = false;
      }
    if (!is_ready) continue;
    stack_.pop_back();
    place(top);
  }
}

void PlacedOrder::place(Place node) {
  is_placed_[node] = 1;
  order_.push_back(node);
  account(node);
}

// Live bytes now, and the forecast, behind the node.
void PlacedOrder::account(Place node) {
  const auto touched = p_.touches[node];
  if (touched.empty()) return;
  const std::size_t frontier = find_frontier();
  if (const std::int64_t made = made_[node]; made > 0) {
    live_ += made;
    peak_ = std::max(peak_, live_);
    forecast_.add(frontier, node, made);
  }
  for (std::uint32_t s : touched)
    if (!p_.stays[s]) shorten(s, frontier);
}

// The storage lives, in the forecast, to the last of its touchers that is left.
void PlacedOrder::shorten(std::uint32_t s, std::size_t frontier) {
  const auto touchers = p_.touchers[s];
  std::uint32_t& end = end_[s];
  const std::uint32_t before = end;
  while (end > 0 && has(touchers[end - 1])) --end;
  if (end == before) return;
  if (end == 0) live_ -= p_.bytes[s];
  const std::size_t last = touchers[before - 1] + 1;
  const std::size_t from = end == 0 ? frontier : std::max<std::size_t>(frontier, touchers[end - 1] + 1);
  if (from < last) forecast_.add(from, last, -p_.bytes[s]);
}

std::size_t PlacedOrder::find_frontier() {
  while (frontier_ < p_.size() && (is_placed_[frontier_] != 0 || (p_.work[frontier_] != PlaceWork::kKernel &&
                                                                  p_.work[frontier_] != PlaceWork::kLaunch &&
                                                                  p_.work[frontier_] != PlaceWork::kWait)))
    ++frontier_;
  return frontier_;
}

void PlacedOrder::collect_new(Place node, std::vector<Place>& makers) const {
  makers.push_back(node);
  for (std::size_t k = 0; k < makers.size(); ++k)
    for (Place input : p_.inputs[makers[k]])
      if (!has(input) && std::find(makers.begin(), makers.end(), input) == makers.end())
        makers.push_back(input);
}

bool PlacedOrder::fits(Place node) {
  const std::size_t frontier = find_frontier();
  if (node == frontier) return true;
  makers_.clear();
  collect_new(node, makers_);
  std::int64_t made = 0;
  std::size_t latest = frontier;
  for (Place maker : makers_)
    if (made_[maker] > 0) made += made_[maker], latest = std::max<std::size_t>(latest, maker);
  if (made == 0) return true;
  if (live_ + made > budget_) return false;
  if (forecast_.most() + made <= budget_ || forecast_.most(frontier, latest) + made <= budget_) return true;
  return fits_with_what_dies(node, frontier, latest, made);
}

// The same, with operands that the node is the last to read.
bool PlacedOrder::fits_with_what_dies(Place node, std::size_t frontier, std::size_t latest,
                                      std::int64_t made) {
  freed_.clear();
  for (std::uint32_t s : p_.touches[node]) {
    if (p_.stays[s] || p_.home[s] == node || end_[s] == 0) continue;
    const auto touchers = p_.touchers[s];
    if (touchers[end_[s] - 1] != node) continue;
    std::uint32_t end = end_[s] - 1;
    while (end > 0 && has(touchers[end - 1])) --end;
    const std::size_t from = end == 0 ? frontier : std::max<std::size_t>(frontier, touchers[end - 1] + 1);
    freed_.push_back({from, node + std::size_t{1}, p_.bytes[s]});
  }
  if (freed_.empty()) return false;
  for (const Freed& f : freed_) forecast_.add(f.from, f.to, -f.bytes);
  const bool result = forecast_.most(frontier, latest) + made <= budget_;
  for (const Freed& f : freed_) forecast_.add(f.from, f.to, f.bytes);
  return result;
}

}  // namespace epweave
