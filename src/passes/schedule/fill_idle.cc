#include "passes/schedule/fill_idle.h"

#include <algorithm>
#include <optional>

#include "passes/schedule/memory_forecast.h"
#include "passes/schedule/order_value.h"

namespace epweave {
namespace {

constexpr std::size_t kMostNodes = 96;  // that are moved together
constexpr std::size_t kMostTries = 64;  // idle times that are looked at for a kernel

// A kernel and what it needs that is not done early; nodes by their index in the order.
struct Bundle {
  std::vector<std::size_t> nodes;
  std::size_t ready = 0;  // the index behind which it can start
};

class IdleFiller {
 public:
  IdleFiller(const ScheduleProblem& problem, const std::vector<Place>& order, std::int64_t budget)
      : p_(problem),
        order_(order),
        budget_(budget),
        idle_(find_idle_times(problem, order)),
        index_(problem.size()),
        time_(order.size()),
        visited_(order.size()),
        forecast_(set_index()) {}

  std::vector<Place> run() {
    if (idle_.empty()) return order_;
    for (const std::size_t kernel : rank_kernels()) move(kernel);
    return write();
  }

 private:
  std::vector<std::int64_t> set_index() {
    for (std::size_t i = 0; i < order_.size(); ++i) {
      index_[order_[i]] = i;
      time_[i] = i;
    }
    std::vector<std::int64_t> change(order_.size() + 1);
    if (!order_.empty()) change[0] = p_.input_bytes;
    for (std::uint32_t s = 0; s < p_.home.size(); ++s) {
      const Life life = lives_.emplace_back(life_of(s));
      change[life.from] += p_.bytes[s];
      change[life.to] -= p_.bytes[s];
    }
    change.pop_back();
    for (std::size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
    return change;
  }

  struct Life {
    std::size_t from, to;
  };
  Life life_of(std::uint32_t storage) const {
    Life life{time_[index_[p_.home[storage]]], 0};
    for (const Place toucher : p_.touchers[storage]) life.to = std::max(life.to, time_[index_[toucher]] + 1);
    if (p_.stays[storage]) life.to = order_.size();
    return life;
  }
  // As long as what stands last in it stays, it ends where it did: of what many nodes share not all
  // are looked at each time that one moves.
  Life life_after_move(std::uint32_t storage) const {
    const Life life = lives_[storage];
    const std::size_t last = life.to - 1;
    return time_[last] == last ? Life{time_[index_[p_.home[storage]]], life.to} : life_of(storage);
  }

  bool is_free(std::size_t i) const {
    const PlaceWork work = p_.work[order_[i]];
    return work == PlaceWork::kView || work == PlaceWork::kStorage || work == PlaceWork::kEager;
  }
  bool may_move(std::size_t i) const {
    return is_free(i) || (p_.work[order_[i]] == PlaceWork::kKernel && p_.is_backward[order_[i]]);
  }

  // How many nodes it is on a rank with whole shards: all ranks move the same.
  std::size_t count_of(std::size_t i) const {
    const std::size_t next = order_[i] + std::size_t{1};
    return next < p_.size() ? p_.number[next] - p_.number[order_[i]] : 1;
  }

  // None where it needs something that cannot come in front of the last idle time.
  std::optional<Bundle> collect(std::size_t kernel) {
    Bundle bundle{{kernel}};
    std::size_t count = count_of(kernel);
    ++visit_;
    visited_[kernel] = visit_;
    for (std::size_t k = 0; k < bundle.nodes.size(); ++k)
      for (const Place input : p_.inputs[order_[bundle.nodes[k]]]) {
        const std::size_t i = index_[input];
        if (visited_[i] == visit_) continue;
        visited_[i] = visit_;
        if (time_[i] == i && i > idle_.front().index && may_move(i)) {
          bundle.nodes.push_back(i);
          count += count_of(i);
          if (count > kMostNodes) return std::nullopt;
        } else {
          bundle.ready = std::max(bundle.ready, time_[i]);
          if (bundle.ready >= idle_.back().index || p_.work[input] == PlaceWork::kLaunch) return std::nullopt;
        }
      }
    std::ranges::sort(bundle.nodes);
    return bundle;
  }

  // Those that keep the fewest bytes for a second first.
  std::vector<std::size_t> rank_kernels() {
    struct Ranked {
      double bytes_per_second;
      std::size_t kernel;
    };
    std::vector<Ranked> ranked;
    for (std::size_t i = idle_.front().index; i < order_.size(); ++i) {
      if (is_free(i) || !may_move(i) || p_.seconds[order_[i]] == 0) continue;
      const auto bundle = collect(i);
      if (!bundle) continue;
      double seconds = 0, bytes = 0;
      for (const std::size_t k : bundle->nodes) {
        seconds += p_.seconds[order_[k]];
        for (const std::uint32_t s : p_.touches[order_[k]])
          if (p_.home[s] == order_[k] && is_used_outside(s)) bytes += static_cast<double>(p_.bytes[s]);
      }
      ranked.push_back({bytes / seconds, i});
    }
    std::ranges::stable_sort(ranked, {}, &Ranked::bytes_per_second);
    std::vector<std::size_t> kernels;
    for (const Ranked& r : ranked) kernels.push_back(r.kernel);
    return kernels;
  }
  bool is_used_outside(std::uint32_t storage) const {
    return p_.stays[storage] || std::ranges::any_of(p_.touchers[storage], [&](Place toucher) {
             return visited_[index_[toucher]] != visit_;
           });
  }

  void move(std::size_t kernel) {
    if (time_[kernel] != kernel) return;
    const auto bundle = collect(kernel);
    if (!bundle) return;
    std::vector<std::size_t> places(bundle->nodes.size());  // in idle_
    std::size_t at = static_cast<std::size_t>(
        std::ranges::upper_bound(idle_, bundle->ready, {}, &IdleTime::index) - idle_.begin());
    double taken = 0;  // of idle_[at], by this bundle
    for (std::size_t k = 0; k < places.size(); ++k) {
      const double seconds = p_.seconds[order_[bundle->nodes[k]]];
      for (std::size_t tries = 0;; ++tries, ++at, taken = 0) {
        if (at == idle_.size() || tries == kMostTries || idle_[at].index >= bundle->nodes.front()) return;
        if (taken + seconds <= idle_[at].seconds) break;
      }
      taken += seconds;
      places[k] = at;
    }
    const auto set_times = [&](bool is_early) {
      for (std::size_t k = 0; k < places.size(); ++k)
        time_[bundle->nodes[k]] = is_early ? idle_[places[k]].index : bundle->nodes[k];
    };
    std::vector<std::uint32_t> storages;
    for (const std::size_t k : bundle->nodes)
      storages.insert(storages.end(), p_.touches[order_[k]].begin(), p_.touches[order_[k]].end());
    std::ranges::sort(storages);
    storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
    std::vector<Life> given, moved;
    for (const std::uint32_t s : storages) given.push_back(lives_[s]);
    set_times(true);
    for (const std::uint32_t s : storages) moved.push_back(life_after_move(s));
    const auto change_lives = [&](const std::vector<Life>& from, const std::vector<Life>& to) {
      for (std::size_t k = 0; k < storages.size(); ++k) {
        const std::uint32_t s = storages[k];
        forecast_.add(from[k].from, from[k].to, -p_.bytes[s]);
        forecast_.add(to[k].from, to[k].to, p_.bytes[s]);
        lives_[s] = to[k];
      }
    };
    change_lives(given, moved);
    if (forecast_.most() > budget_) {
      change_lives(moved, given);
      return set_times(false);
    }
    for (std::size_t k = 0; k < places.size(); ++k)
      idle_[places[k]].seconds -= p_.seconds[order_[bundle->nodes[k]]];
  }

  // What is brought forward stands in front of the node that waits, in the order that it had.
  std::vector<Place> write() const {
    std::vector<std::vector<Place>> early(order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i)
      if (time_[i] != i) early[time_[i]].push_back(order_[i]);
    std::vector<Place> result;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      result.insert(result.end(), early[i].begin(), early[i].end());
      if (time_[i] == i) result.push_back(order_[i]);
    }
    return result;
  }

  const ScheduleProblem& p_;
  const std::vector<Place>& order_;
  const std::int64_t budget_;
  std::vector<IdleTime> idle_;
  std::vector<std::size_t> index_;  // by place
  std::vector<std::size_t> time_;   // by index: the index that it stands at or in front of
  std::vector<std::uint32_t> visited_;
  std::uint32_t visit_ = 0;
  std::vector<Life> lives_;  // by storage
  MemoryForecast forecast_;
};

}  // namespace

std::vector<Place> fill_idle(const ScheduleProblem& problem, const std::vector<Place>& order,
                             std::int64_t budget) {
  return IdleFiller(problem, order, budget).run();
}

}  // namespace epweave
