#include "passes/schedule/late_starts.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace epweave {
namespace {

// Time runs from the end of the step to its start.
class BackwardSchedule {
 public:
  BackwardSchedule(const ScheduleProblem& problem, const std::vector<double>& starts)
      : p_(problem),
        starts_(starts),
        missing_(problem.size()),
        released_at_(problem.size()),
        tails_(problem.size()),
        streams_(problem.groups + 1) {}

  std::vector<double> run() {
    for (Place i = 0; i < p_.size(); ++i) missing_[i] = static_cast<std::uint32_t>(p_.users[i].size());
    for (Place i = 0; i < p_.size(); ++i)
      if (missing_[i] == 0) release(i, 0);
    settle();
    while (Stream* next = pick_stream()) {
      const Place node = next->take();
      next->free = std::max(next->free, released_at_[node]) + p_.seconds[node];
      done(node, next->free);
      settle();
    }
    return std::move(tails_);
  }

 private:
  using Entry = std::pair<double, Place>;
  struct Stream {
    double free = 0;
    std::priority_queue<Entry> ready;  // by start, the latest on top
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>>
        waiting;  // by release, the first on top

    double next() const {
      if (!ready.empty()) return free;
      return waiting.empty() ? std::numeric_limits<double>::infinity() : std::max(free, waiting.top().first);
    }
    Place take() {
      const Place node = ready.top().second;
      ready.pop();
      return node;
    }
  };

  std::size_t stream_of(Place i) const { return p_.work[i] == PlaceWork::kKernel ? p_.groups : p_.group[i]; }

  // All that needs the node has been scheduled, the first of it to start `at` before the end.
  void release(Place node, double at) {
    released_at_[node] = at;
    released_.push_back(node);
  }
  void settle() {
    while (!released_.empty()) {
      const Place node = released_.back();
      released_.pop_back();
      if (p_.is_timed(node)) {
        streams_[stream_of(node)].waiting.push({released_at_[node], node});
      } else {
        done(node, released_at_[node]);
      }
    }
  }
  void done(Place node, double at) {
    tails_[node] = at;
    for (Place input : p_.inputs[node]) {
      released_at_[input] = std::max(released_at_[input], at);
      if (--missing_[input] == 0) release(input, released_at_[input]);
    }
  }

  // The one that can go on first, with what is released by then ready.
  Stream* pick_stream() {
    Stream* first = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (Stream& stream : streams_)
      if (const double next = stream.next(); next < least) least = next, first = &stream;
    if (first == nullptr) return nullptr;
    while (!first->waiting.empty() && first->waiting.top().first <= least) {
      const Place node = first->waiting.top().second;
      first->waiting.pop();
      first->ready.push({starts_[node] + p_.seconds[node], node});
    }
    return first;
  }

  const ScheduleProblem& p_;
  const std::vector<double>& starts_;
  std::vector<std::uint32_t> missing_;
  std::vector<double> released_at_, tails_;
  std::vector<Stream> streams_;
  std::vector<Place> released_;
};

}  // namespace

std::vector<double> find_late_tails(const ScheduleProblem& problem, const std::vector<double>& starts) {
  return BackwardSchedule(problem, starts).run();
}

}  // namespace epweave
