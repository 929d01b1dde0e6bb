#include "passes/schedule/list_schedule.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "passes/schedule/list_choice.h"
#include "passes/schedule/list_ready.h"
#include "passes/schedule/placed_order.h"

namespace epweave {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// By node: how much compute the body's own order has in front of it, in seconds.
std::vector<double> measure_work_before(const ScheduleProblem& problem) {
  std::vector<double> before(problem.size());
  double work = 0;
  for (Place i = 0; i < problem.size(); ++i) {
    before[i] = work;
    if (problem.work[i] == PlaceWork::kKernel) work += problem.seconds[i];
  }
  return before;
}

// The clock of the execution model, which places what is chosen of what is ready.
class ListClock {
 public:
  ListClock(const ScheduleProblem& problem, const std::vector<std::int64_t>& live,
            std::vector<double> priority, const ListOptions& options)
      : p_(problem),
        options_(options),
        priority_(std::move(priority)),
        work_before_(measure_work_before(problem)),
        group_free_(problem.groups),
        starts_(problem.size()),
        placed_(problem, live, options.budget),
        ready_(problem, work_before_, placed_),
        choice_(problem, priority_, work_before_, options, ready_.newly(), placed_) {
    if (options.remaining != nullptr) remaining_ = *options.remaining;
  }

  ListSchedule run() {
    ready_.start();
    while (ready_.left() > 0) {
      retire();
      if (ready_.left() == 0) break;
      if (placed_.peak() > options_.most || is_too_long())
        return {.order = {}, .seconds = kNever, .peak = placed_.peak(), .starts = {}, .stalls = {}};
      if (const Place kernel = choice_.pick_kernel(); kernel != kNoPlace) {
        if (stands_back(kernel) && idle_until(-ready_.newly().in_flight.top().rank)) continue;
        const double end = now_ + p_.seconds[kernel];
        launch_until(end);
        if (!placed_.fits(kernel)) continue;  // the launches took its memory
        execute(kernel);
        now_ = end;
        continue;
      }
      const std::size_t before = ready_.left();
      launch_until(now_);
      if (ready_.left() != before || launch_first_left()) continue;
      if (!advance()) force();
    }
    for (Place i = 0; i < p_.size(); ++i) placed_.need(i);
    double end = now_;
    for (double f : group_free_) end = std::max(end, f);
    EPWEAVE_CHECK(placed_.size() == p_.size());
    return {placed_.take_order(), end, placed_.peak(), std::move(starts_), std::move(stalls_)};
  }

 private:
  // A few times in a schedule: a look goes through all that is left.
  bool is_too_long() {
    if (!remaining_ || placed_.size() < next_look_) return false;
    constexpr std::size_t kLooks = 16;
    constexpr double kRounding = 1e-9;  // sums in another order
    next_look_ = placed_.size() + p_.size() / kLooks + 1;
    std::vector<double> free = group_free_;
    for (double& at : free) at = std::max(at, now_);
    free.push_back(now_);
    return remaining_->end_at_least(free, placed_.flags()) > options_.limit * (1 + kRounding);
  }

  // A kernel, launch or wait.
  void execute(Place node) {
    ready_.newly().recent.clear();
    placed_.need(node);
    starts_[node] = now_;
    if (p_.work[node] != PlaceWork::kLaunch) return ready_.complete(node);
    double& free = group_free_[p_.group[node]];
    free = std::max(free, now_) + p_.seconds[node];
    ends_.push({-free, node});
    ready_.launch(node, free);
  }

  // What is done is waited for, and may be taken.
  void retire() {
    RankedQueue& in_flight = ready_.newly().in_flight;
    std::vector<Place>& recent = ready_.newly().recent;
    while (!in_flight.empty() && -in_flight.top().rank <= now_) {
      const Place done = in_flight.pop().node;
      std::vector<Place> kept;
      kept.swap(recent);
      if (p_.work[done] == PlaceWork::kLaunch) {
        ready_.land(done);
      } else {
        execute(done);
      }
      recent.insert(recent.end(), kept.begin(), kept.end());
    }
  }

  // Launches on each group that would be idle before `end`.
  void launch_until(double end) {
    const double limit = choice_.window_end();
    for (std::uint32_t g = 0; g < p_.groups; ++g) {
      while (group_free_[g] < end || group_free_[g] <= now_) {
        const Place node = choice_.pick_launch(g, limit);
        if (node == kNoPlace) break;
        std::vector<Place> kept;
        kept.swap(ready_.newly().recent);
        execute(node);
        kept.swap(ready_.newly().recent);
      }
    }
  }

  // Whether something more urgent than the kernel could start while it runs, and soon.
  bool stands_back(Place kernel) const {
    if (options_.patience <= 0 || ready_.newly().in_flight.empty()) return false;
    const auto [minus_end, done] = ready_.newly().in_flight.top();
    const double idle = -minus_end - now_, late = p_.seconds[kernel] - idle;
    return late > 0 && priority_[done] > priority_[kernel] && idle < options_.patience * late;
  }

  // To the next end of a collective, if one is in flight.
  bool advance() {
    while (!ends_.empty() && -ends_.top().rank <= now_) ends_.pop();
    return !ends_.empty() && idle_until(-ends_.top().rank);
  }

  bool idle_until(double end) {
    const std::size_t before = ready_.left();
    launch_until(now_);
    if (ready_.left() != before) return true;
    if (!stalls_.empty() && stalls_.back().at == now_) {
      stalls_.back().at = end;
      stalls_.back().seconds += end - now_;
    } else {
      stalls_.push_back({end, end - now_});
    }
    now_ = end;
    return true;
  }

  // Memory may allow no other.
  bool launch_first_left() {
    const std::size_t first = placed_.find_frontier();
    if (first >= p_.size() || p_.work[first] != PlaceWork::kLaunch ||
        !ready_.has_inputs(static_cast<Place>(first)))
      return false;
    execute(static_cast<Place>(first));
    return true;
  }

  // The first node that is left: its inputs are, and the order of the body goes on with it.
  void force() {
    const std::size_t first = placed_.find_frontier();
    EPWEAVE_CHECK(first < p_.size() && ready_.has_inputs(static_cast<Place>(first)) &&
                  p_.work[first] != PlaceWork::kWait);
    const auto node = static_cast<Place>(first);
    execute(node);
    if (p_.work[node] == PlaceWork::kKernel) now_ += p_.seconds[node];
  }

  const ScheduleProblem& p_;
  const ListOptions& options_;
  const std::vector<double> priority_, work_before_;  // by node
  std::optional<RemainingTime> remaining_;
  std::size_t next_look_ = 0;  // when so many nodes are placed

  double now_ = 0;
  std::vector<double> group_free_;
  RankedQueue ends_;  // of launches
  std::vector<double> starts_;
  std::vector<Stall> stalls_;
  PlacedOrder placed_;
  ListReadiness ready_;
  ListChoice choice_;
};

}  // namespace

ListSchedule schedule_list(const ScheduleProblem& problem, const std::vector<std::int64_t>& live,
                           std::vector<double> priority, const ListOptions& options) {
  return ListClock(problem, live, std::move(priority), options).run();
}

}  // namespace epweave
