#include "passes/schedule/list_schedule.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "passes/schedule/placed_order.h"

namespace epweave {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Ranked {
  double rank;
  Place node;
  // Ties go to the earlier node.
  friend bool operator<(const Ranked& a, const Ranked& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.node > b.node;
  }
};

// The node with the highest rank on top.
class Queue {
 public:
  bool empty() const { return heap_.empty(); }
  const Ranked& top() const { return heap_.front(); }
  void push(Ranked entry) {
    heap_.push_back(entry);
    std::push_heap(heap_.begin(), heap_.end());
  }
  Ranked pop() {
    std::pop_heap(heap_.begin(), heap_.end());
    const Ranked entry = heap_.back();
    heap_.pop_back();
    return entry;
  }

 private:
  std::vector<Ranked> heap_;
};

class Scheduler {
 public:
  Scheduler(const ScheduleProblem& problem, const std::vector<std::int64_t>& live,
            std::vector<double> priority, const ListOptions& options)
      : p_(problem),
        options_(options),
        rank_(std::move(priority)),
        missing_(problem.size()),
        group_free_(problem.groups),
        launched_end_(problem.size()),
        work_before_(problem.size()),
        ready_launches_(problem.groups),
        held_launches_(problem.groups),
        starts_(problem.size()),
        placed_(problem, live, options.budget) {
    if (options.remaining != nullptr) remaining_ = *options.remaining;
    measure_work();
  }

  ListSchedule run() {
    start();
    while (left_ > 0) {
      retire();
      if (left_ == 0) break;
      if (placed_.peak() > options_.most || is_too_long())
        return {.order = {}, .seconds = kNever, .peak = placed_.peak(), .starts = {}, .stalls = {}};
      if (const Place kernel = pick_kernel(); kernel != kNoPlace) {
        if (stands_back(kernel) && idle_until(-in_flight_.top().rank)) continue;
        const double end = now_ + p_.seconds[kernel];
        launch_until(end);
        if (!placed_.fits(kernel)) continue;  // the launches took its memory
        execute(kernel);
        now_ = end;
        continue;
      }
      const std::size_t before = left_;
      launch_until(now_);
      if (left_ != before || launch_first_left()) continue;
      if (!advance()) force();
    }
    for (Place i = 0; i < p_.size(); ++i) placed_.need(i);
    double end = now_;
    for (double f : group_free_) end = std::max(end, f);
    EPWEAVE_CHECK(placed_.size() == p_.size());
    return {placed_.take_order(), end, placed_.peak(), std::move(starts_), std::move(stalls_)};
  }

 private:
  // ------------------------------------------------------------------------- setting up

  void measure_work() {
    double work = 0;
    for (Place i = 0; i < p_.size(); ++i) {
      work_before_[i] = work;
      if (p_.work[i] != PlaceWork::kKernel) continue;
      work += p_.seconds[i];
      kernels_.push_back(i);
    }
  }

  void start() {
    for (Place i = 0; i < p_.size(); ++i) {
      missing_[i] = static_cast<std::uint32_t>(p_.inputs[i].size());
      if (p_.work[i] != PlaceWork::kPinned || !p_.inputs[i].empty()) ++left_;
    }
    std::vector<Place> roots;
    for (Place i = 0; i < p_.size(); ++i)
      if (missing_[i] == 0) roots.push_back(i);
    for (Place i : roots) {
      if (p_.work[i] == PlaceWork::kPinned) placed_.begin_with(i);
    }
    for (Place i : roots) release(i);
    settle();
  }

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

  // ------------------------------------------------------------------------- becoming ready

  // All that the node needs is there, or costs nothing.
  void release(Place node) { released_.push_back(node); }

  void settle() {
    while (!released_.empty()) {
      const Place node = released_.back();
      released_.pop_back();
      switch (p_.work[node]) {
        case PlaceWork::kKernel:
          held_.push({-work_before_[node], node});
          recent_.push_back(node);
          break;
        case PlaceWork::kLaunch:
          held_launches_[p_.group[node]].push({-work_before_[node], node});
          break;
        case PlaceWork::kWait:
          in_flight_.push({-launched_end_[p_.launch[node]], node});
          break;
        case PlaceWork::kEager:
          placed_.need(node);
          [[fallthrough]];
        case PlaceWork::kView:
        case PlaceWork::kStorage:
          --left_;
          [[fallthrough]];
        case PlaceWork::kPinned:
          if (p_.work[node] == PlaceWork::kPinned && !p_.inputs[node].empty()) --left_;
          tell_users(node);
          break;
      }
    }
  }

  void tell_users(Place node) {
    for (Place user : p_.users[node])
      if (--missing_[user] == 0) release(user);
  }

  // ------------------------------------------------------------------------- executing

  // A kernel, launch or wait.
  void execute(Place node) {
    recent_.clear();
    placed_.need(node);
    --left_;
    starts_[node] = now_;
    if (p_.work[node] == PlaceWork::kLaunch) {
      double& free = group_free_[p_.group[node]];
      free = std::max(free, now_) + p_.seconds[node];
      launched_end_[node] = free;
      ends_.push({-free, node});
      tell_waits(node);
    } else {
      tell_users(node);
    }
    settle();
  }

  // Others than waits take the result of a launch when it is done: the size of what an exchange
  // received.
  void tell_waits(Place launch) {
    bool is_taken = false;
    for (Place user : p_.users[launch]) {
      if (p_.work[user] == PlaceWork::kWait) {
        if (--missing_[user] == 0) release(user);
      } else {
        is_taken = true;
      }
    }
    if (is_taken) in_flight_.push({-launched_end_[launch], launch});
  }
  void tell_takers(Place launch) {
    for (Place user : p_.users[launch])
      if (p_.work[user] != PlaceWork::kWait && --missing_[user] == 0) release(user);
    settle();
  }

  // What is done is waited for, and may be taken.
  void retire() {
    while (!in_flight_.empty() && -in_flight_.top().rank <= now_) {
      const Place done = in_flight_.pop().node;
      std::vector<Place> kept;
      kept.swap(recent_);
      if (p_.work[done] == PlaceWork::kLaunch) {
        tell_takers(done);
      } else {
        execute(done);
      }
      recent_.insert(recent_.end(), kept.begin(), kept.end());
    }
  }

  // ------------------------------------------------------------------------- choosing

  double window_end() {
    while (first_kernel_ < kernels_.size() && placed_.has(kernels_[first_kernel_])) ++first_kernel_;
    return (first_kernel_ < kernels_.size() ? work_before_[kernels_[first_kernel_]] : kNever) +
           options_.window;
  }

  Place pick_kernel() {
    const double limit = window_end();
    while (!held_.empty() && -held_.top().rank <= limit) {
      const Place node = held_.pop().node;
      ready_.push({rank_[node], node});
      by_place_.push({-static_cast<double>(node), node});
    }
    while (!ready_.empty() && placed_.has(ready_.top().node)) ready_.pop();
    if (ready_.empty()) return kNoPlace;
    const Place loyal = find_loyal(limit, ready_.top().rank - options_.loyalty);
    if (loyal != kNoPlace && placed_.fits(loyal)) return loyal;
    if (const Place node = pick_from(ready_, 24); node != kNoPlace) return node;
    return pick_from(by_place_, 8);
  }

  Place find_loyal(double limit, double least) const {
    Place best = kNoPlace;
    for (Place node : recent_)
      if (!placed_.has(node) && p_.work[node] == PlaceWork::kKernel && work_before_[node] <= limit &&
          rank_[node] >= least && (best == kNoPlace || rank_[node] > rank_[best]))
        best = node;
    return best;
  }

  // The first in the queue that fits in memory.
  Place pick_from(Queue& queue, std::size_t tries) {
    Place found = kNoPlace;
    tried_.clear();
    while (!queue.empty() && tried_.size() < tries && found == kNoPlace) {
      const Ranked entry = queue.pop();
      if (placed_.has(entry.node)) continue;
      tried_.push_back(entry);
      if (placed_.fits(entry.node)) found = entry.node;
    }
    for (const Ranked& entry : tried_) queue.push(entry);
    return found;
  }

  // Launches on each group that would be idle before `end`.
  void launch_until(double end) {
    const double limit = window_end();
    for (std::uint32_t g = 0; g < p_.groups; ++g) {
      Queue& held = held_launches_[g];
      while (group_free_[g] < end || group_free_[g] <= now_) {
        while (!held.empty() && -held.top().rank <= limit) {
          const Place node = held.pop().node;
          ready_launches_[g].push({rank_[node], node});
        }
        const Place node = pick_from(ready_launches_[g], 4);
        if (node == kNoPlace) break;
        std::vector<Place> kept;
        kept.swap(recent_);
        execute(node);
        kept.swap(recent_);
      }
    }
  }

  // Whether something more urgent than the kernel could start while it runs, and soon.
  bool stands_back(Place kernel) const {
    if (options_.patience <= 0 || in_flight_.empty()) return false;
    const auto [minus_end, done] = in_flight_.top();
    const double idle = -minus_end - now_, late = p_.seconds[kernel] - idle;
    return late > 0 && rank_[done] > rank_[kernel] && idle < options_.patience * late;
  }

  // To the next end of a collective, if one is in flight.
  bool advance() {
    while (!ends_.empty() && -ends_.top().rank <= now_) ends_.pop();
    return !ends_.empty() && idle_until(-ends_.top().rank);
  }

  bool idle_until(double end) {
    const std::size_t before = left_;
    launch_until(now_);
    if (left_ != before) return true;
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
    if (first >= p_.size() || p_.work[first] != PlaceWork::kLaunch || missing_[first] != 0) return false;
    execute(static_cast<Place>(first));
    return true;
  }

  // The first node that is left: its inputs are, and the order of the body goes on with it.
  void force() {
    const std::size_t first = placed_.find_frontier();
    EPWEAVE_CHECK(first < p_.size() && missing_[first] == 0 && p_.work[first] != PlaceWork::kWait);
    const auto node = static_cast<Place>(first);
    execute(node);
    if (p_.work[node] == PlaceWork::kKernel) now_ += p_.seconds[node];
  }

  const ScheduleProblem& p_;
  const ListOptions& options_;
  std::optional<RemainingTime> remaining_;
  std::size_t next_look_ = 0;  // when so many nodes are placed
  std::vector<double> rank_;
  std::vector<std::uint32_t> missing_;
  std::vector<Place> kernels_;
  std::size_t left_ = 0, first_kernel_ = 0;

  double now_ = 0;
  std::vector<double> group_free_, launched_end_, work_before_;
  std::vector<Place> released_, recent_;
  Queue held_, ready_, by_place_, ends_;
  Queue
      in_flight_;  // waits, and launches whose result is taken without one, by the time at which they are done
  std::vector<Queue> ready_launches_, held_launches_;
  std::vector<Ranked> tried_;
  std::vector<double> starts_;
  std::vector<Stall> stalls_;
  PlacedOrder placed_;
};

}  // namespace

ListSchedule schedule_list(const ScheduleProblem& problem, const std::vector<std::int64_t>& live,
                           std::vector<double> priority, const ListOptions& options) {
  return Scheduler(problem, live, std::move(priority), options).run();
}

}  // namespace epweave
