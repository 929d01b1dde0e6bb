#include "passes/schedule/order_value.h"

#include <algorithm>
#include <numeric>

namespace epweave {

namespace {

// Whether the user begins behind the input's end. A wait for another launch, which comes behind
// this one in the order, needs it issued alone.
bool needs_end(const ScheduleProblem& problem, Place input, Place user) {
  return problem.work[input] != PlaceWork::kLaunch || problem.work[user] != PlaceWork::kWait ||
         problem.launch[user] == input;
}

}  // namespace

std::vector<double> find_tails(const ScheduleProblem& problem) {
  std::vector<double> tails(problem.size());
  for (std::size_t i = problem.size(); i-- > 0;) {
    double longest = 0;
    for (Place user : problem.users[i])
      if (needs_end(problem, static_cast<Place>(i), user)) longest = std::max(longest, tails[user]);
    tails[i] = longest + problem.seconds[i];
  }
  return tails;
}

namespace {

constexpr double kShortestIdle = 1e-6;  // shorter than any kernel

// The clock of the execution model with a host that costs nothing.
class Clock {
 public:
  explicit Clock(const ScheduleProblem& problem)
      : problem_(problem), streams_(problem.groups), done_(problem.size()) {}

  void run(Place node) {
    double ready = 0;
    for (Place input : problem_.inputs[node])
      if (needs_end(problem_, input, node)) ready = std::max(ready, done_[input]);
    switch (problem_.work[node]) {
      case PlaceWork::kKernel:
        ready = compute_ = std::max(compute_, ready) + problem_.seconds[node];
        break;
      case PlaceWork::kLaunch: {
        double& stream = streams_[problem_.group[node]];
        ready = stream = std::max({stream, compute_, ready}) + problem_.seconds[node];
        break;
      }
      case PlaceWork::kWait:
        compute_ = std::max(compute_, done_[problem_.launch[node]]);
        break;
      default:
        break;
    }
    done_[node] = ready;
  }
  double compute() const { return compute_; }
  double end() const {
    double end = compute_;
    for (double stream : streams_) end = std::max(end, stream);
    return end;
  }

 private:
  const ScheduleProblem& problem_;
  double compute_ = 0;
  std::vector<double> streams_, done_;
};

}  // namespace

OrderValue evaluate_order(const ScheduleProblem& problem, std::span<const Place> order) {
  OrderValue value;
  Clock clock(problem);
  std::vector<std::uint32_t> left(problem.home.size());
  for (std::uint32_t s : problem.touches.items) ++left[s];
  std::int64_t live = problem.input_bytes;
  for (Place node : order) {
    clock.run(node);
    const auto touched = problem.touches[node];
    for (std::uint32_t s : touched)
      if (problem.home[s] == node) live += problem.bytes[s];
    value.peak = std::max(value.peak, live);
    for (std::uint32_t s : touched)
      if (--left[s] == 0 && !problem.stays[s]) live -= problem.bytes[s];
  }
  value.seconds = clock.end();
  return value;
}

std::vector<IdleTime> find_idle_times(const ScheduleProblem& problem, std::span<const Place> order) {
  std::vector<IdleTime> idle;
  Clock clock(problem);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double before = clock.compute();
    clock.run(order[i]);
    const bool is_kernel = problem.work[order[i]] == PlaceWork::kKernel;
    const double seconds = clock.compute() - before - (is_kernel ? problem.seconds[order[i]] : 0);
    if (seconds > kShortestIdle) idle.push_back({i, seconds});
  }
  return idle;
}

std::vector<std::int64_t> find_live_bytes(const ScheduleProblem& problem) {
  const std::size_t n = problem.size();
  std::vector<std::int64_t> change(n + 1);
  if (n > 0) change[0] = problem.input_bytes;
  for (std::size_t s = 0; s < problem.home.size(); ++s) {
    change[problem.home[s]] += problem.bytes[s];
    if (!problem.stays[s]) change[problem.touchers[s].back() + 1] -= problem.bytes[s];
  }
  change.pop_back();
  std::partial_sum(change.begin(), change.end(), change.begin());
  return change;
}

}  // namespace epweave
