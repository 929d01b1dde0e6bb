#include "passes/schedule/list_ready.h"

namespace epweave {

ListReadiness::ListReadiness(const ScheduleProblem& problem, const std::vector<double>& work_before,
                             PlacedOrder& placed)
    : p_(problem),
      work_before_(work_before),
      placed_(placed),
      missing_(problem.size()),
      launched_end_(problem.size()) {
  newly_.launches.resize(problem.groups);
}

void ListReadiness::start() {
  for (Place i = 0; i < p_.size(); ++i) {
    missing_[i] = static_cast<std::uint32_t>(p_.inputs[i].size());
    if (p_.work[i] != PlaceWork::kPinned || !p_.inputs[i].empty()) ++left_;
  }
  for (Place i = 0; i < p_.size(); ++i) {
    if (missing_[i] != 0) continue;
    released_.push_back(i);
    if (p_.work[i] == PlaceWork::kPinned) placed_.begin_with(i);
  }
  settle();
}

void ListReadiness::complete(Place node) {
  --left_;
  tell_users(node);
  settle();
}

void ListReadiness::launch(Place node, double end) {
  --left_;
  launched_end_[node] = end;
  bool is_taken = false;
  for (const Place user : p_.users[node]) {
    if (p_.work[user] == PlaceWork::kWait) {
      tell(user);
    } else {
      is_taken = true;
    }
  }
  if (is_taken) newly_.in_flight.push({-end, node});
  settle();
}

void ListReadiness::land(Place launch) {
  for (const Place user : p_.users[launch])
    if (p_.work[user] != PlaceWork::kWait) tell(user);
  settle();
}

void ListReadiness::tell(Place user) {
  if (--missing_[user] == 0) released_.push_back(user);
}

void ListReadiness::tell_users(Place node) {
  for (const Place user : p_.users[node]) tell(user);
}

void ListReadiness::settle() {
  while (!released_.empty()) {
    const Place node = released_.back();
    released_.pop_back();
    switch (p_.work[node]) {
      case PlaceWork::kKernel:
        newly_.kernels.push({-work_before_[node], node});
        newly_.recent.push_back(node);
        break;
      case PlaceWork::kLaunch:
        newly_.launches[p_.group[node]].push({-work_before_[node], node});
        break;
      case PlaceWork::kWait:
        newly_.in_flight.push({-launched_end_[p_.launch[node]], node});
        break;
      case PlaceWork::kEager:
        placed_.need(node);
        [[fallthrough]];
      case PlaceWork::kView:
      case PlaceWork::kStorage:
        --left_;
        tell_users(node);
        break;
      case PlaceWork::kPinned:
        if (!p_.inputs[node].empty()) --left_;
        tell_users(node);
        break;
    }
  }
}

}  // namespace epweave
