#include "passes/schedule/inductor_paths.h"

#include <algorithm>
#include <utility>

namespace epweave {

std::optional<std::vector<Place>> InductorPaths::find(Place node, Place start) {
  std::vector<Place> path;
  ++epoch_;
  stack_.assign(1, start);
  while (!stack_.empty()) {
    const Place at = stack_.back();
    stack_.pop_back();
    for (const Place input : p_.inputs[at]) {
      if (is_scheduled_[input] || std::exchange(seen_at_[input], epoch_) == epoch_) continue;
      if (input == node || !may_be_on_path(node, input)) return std::nullopt;
      path.push_back(input);
      stack_.push_back(input);
    }
  }
  std::ranges::sort(path);
  return path;
}

bool InductorPaths::may_be_on_path(Place node, Place i) const {
  switch (f_.roles[i]) {
    case InductorRole::kCompute:
    case InductorRole::kLaunch:
      return false;
    case InductorRole::kWait:
      return !flight_.would_wait_twice(f_.collective[i]) && flight_.is_hidden(f_.collective[i], node);
    case InductorRole::kRank:
    case InductorRole::kInput:
    case InductorRole::kOther:
      return !f_.blocks_path[i];
  }
  return false;
}

void InductorFollowers::find(Place node, Place last) {
  node_ = node;
  last_ = last;
  ++epoch_;
  stack_.assign(1, node);
  while (!stack_.empty()) {
    const Place at = stack_.back();
    stack_.pop_back();
    for (const Place user : users_[at])
      if (user <= last && std::exchange(seen_at_[user], epoch_) != epoch_) stack_.push_back(user);
  }
}

}  // namespace epweave
