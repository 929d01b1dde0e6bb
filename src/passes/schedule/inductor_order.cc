#include "passes/schedule/inductor_order.h"

#include <algorithm>
#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "passes/schedule/inductor_memory.h"
#include "passes/schedule/python_heap.h"

namespace epweave {
namespace {

// A place in a queue of what is ready; the least is taken first. No two are equal.
struct ReadyNode {
  std::uint32_t first =
      0;  // the compute node that needs it; of those that none needs, 0 if a reduce-scatter does
  std::int32_t second = 0;
  Place place = kNoPlace;
  friend auto operator<=>(const ReadyNode&, const ReadyNode&) = default;
};

// A collective that might be started under a node; the least is tried first.
struct Candidate {
  int urgency = 0;
  std::uint32_t needed_by = 0;
  double not_hidden = 0;  // negative: how much of it the node could hide
  Place start = kNoPlace;
  std::uint32_t collective = 0;
  friend bool operator<(const Candidate& a, const Candidate& b) {
    return std::tie(a.urgency, a.needed_by, a.not_hidden, a.start) <
           std::tie(b.urgency, b.needed_by, b.not_hidden, b.start);
  }
};

class InductorScheduler {
 public:
  InductorScheduler(const Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                    const InductorFacts& facts, const InductorKnobs& knobs)
      : p_(problem),
        knobs_(knobs),
        f_(facts),
        given_memory_(graph, model),
        memory_(given_memory_),
        missing_(problem.size()),
        is_scheduled_(problem.size()),
        states_(f_.collectives.size()),
        potential_bytes_(f_.keys),
        active_(problem.groups),
        in_flight_of_(problem.groups),
        has_collective_(problem.groups),
        depends_at_(problem.size()),
        seen_at_(problem.size()) {
    find_budget();
    find_collectives();
  }

  InductorOrder run() {
    seed();
    while (!on_path_.empty() || !off_path_.empty()) {
      if (bytes_in_flight_ >= knobs_.max_in_flight_bytes && force_oldest_wait()) continue;
      take_next();
      for (const Place place : batch_) take(place);
    }
    EPWEAVE_CHECK(order_.size() == p_.size());
    return report();
  }

 private:
  using Credit = std::vector<double>;  // by group: milliseconds that can still hide

  struct CollectiveState {
    double exposed = 0;  // milliseconds
    std::vector<Place> hidden_by;
    bool is_started = false, is_in_flight = false, is_being_waited = false;
  };

  // ------------------------------------------------------------------------- set-up

  void find_budget() {
    std::int64_t most = 0, peak = 0;
    for (Place i = 0; i < p_.size(); ++i) {
      given_memory_.place(i);
      const std::int64_t live = given_memory_.live();
      peak = std::max(peak, live);
      most = std::max(most, live);
      if (f_.roles[i] != InductorRole::kCompute) continue;
      given_live_.push_back(most);
      most = live;
    }
    given_peak_ = peak;
    prefetched_.assign(f_.computes, 0);
    const auto& bytes = knobs_.max_memory_increase_bytes;
    const auto& ratio = knobs_.max_memory_increase_ratio;
    if (!bytes && !ratio) return;
    const auto share = static_cast<std::int64_t>(static_cast<double>(peak) * ratio.value_or(0));
    budget_ = peak + std::max(bytes.value_or(0), share);
  }

  void find_collectives() {
    for (std::uint32_t c = 0; c < f_.collectives.size(); ++c) {
      const InductorCollective& collective = f_.collectives[c];
      states_[c].exposed = collective.ms;
      has_collective_[collective.group] = true;
      if (is_off_path(collective.start)) {
        active_[collective.group].insert(c);
      } else {
        by_need_.push_back(c);
      }
    }
    std::ranges::sort(by_need_, {},
                      [&](std::uint32_t c) { return std::pair(f_.needed_by[f_.collectives[c].start], c); });
    activate();
  }

  // Collectives that compute nodes need come into reach as the compute in front of them is
  // scheduled.
  void activate() {
    for (; next_by_need_ < by_need_.size(); ++next_by_need_) {
      const std::uint32_t c = by_need_[next_by_need_];
      const std::int64_t distance =
          std::int64_t{f_.needed_by[f_.collectives[c].start]} - std::int64_t{computes_done_};
      if (distance > knobs_.max_compute_pre_fetch) return;
      if (!states_[c].is_started) active_[f_.collectives[c].group].insert(c);
    }
  }

  // Lookups in meshes stand behind the inputs, whatever else is scheduled.
  void seed() {
    for (Place i = 0; i < p_.size(); ++i) missing_[i] = static_cast<std::uint32_t>(p_.inputs[i].size());
    for (Place i = 0; i < p_.size(); ++i) {
      if (f_.roles[i] != InductorRole::kRank) continue;
      order_.push_back(i);
      is_scheduled_[i] = true;
      memory_.place(i);
      for (const Place user : p_.users[i]) --missing_[user];
    }
    for (Place i = 0; i < p_.size(); ++i)
      if (missing_[i] == 0 && f_.roles[i] != InductorRole::kRank) add_ready(i);
  }

  // ------------------------------------------------------------------------- queues

  bool is_off_path(Place i) const { return f_.needed_by[i] == kNeverNeeded; }
  const InductorCollective& collective_of(Place i) const { return f_.collectives[f_.collective[i]]; }
  CollectiveState& state_of(Place i) { return states_[f_.collective[i]]; }

  void add_ready(Place i) {
    if (is_off_path(i)) {
      off_path_.push({f_.is_needed_by_scatter[i] ? 0U : 1U, 0, i});
      if (f_.roles[i] == InductorRole::kLaunch)
        potential_bytes_[collective_of(i).key] += collective_of(i).bytes;
    } else {
      on_path_.push({f_.needed_by[i], local_priority(i), i});
    }
  }

  // Waits that are exposed come last, what leads to a collective alone first.
  std::int32_t local_priority(Place i) {
    if (f_.roles[i] == InductorRole::kWait) return state_of(i).exposed != 0 ? 1 : 0;
    return leads_to_collective(i) ? -1 : 0;
  }
  bool leads_to_collective(Place i) const {
    while (f_.value_users[i].size() == 1) {
      const Place user = f_.value_users[i].front();
      if (f_.value_inputs[user] != 1) return false;
      if (f_.roles[user] == InductorRole::kLaunch && !is_scheduled_[user]) return true;
      if (!f_.is_cheap[user]) return false;
      i = user;
    }
    return false;
  }

  // What to schedule next, usually one node, into batch_.
  void take_next() {
    batch_.clear();
    if (off_path_.empty() || !may_take_off_path(off_path_.top().place)) {
      batch_.push_back(on_path_.pop().place);
      return;
    }
    const Place place = off_path_.pop().place;
    batch_.push_back(place);
    if (knobs_.max_off_bucket_bytes && f_.roles[place] == InductorRole::kLaunch) take_of_same_key(place);
  }

  bool may_take_off_path(Place i) {
    if (on_path_.empty() || is_scheduled_[i]) return true;
    if (f_.roles[i] == InductorRole::kWait)
      return state_of(i).exposed == 0 || (budget_ && memory_.live() > *budget_);
    if (knobs_.max_off_bucket_bytes && f_.roles[i] == InductorRole::kLaunch)
      return potential_bytes_[collective_of(i).key] >= *knobs_.max_off_bucket_bytes;
    return f_.is_needed_by_scatter[i] && std::int64_t{i} <= last_on_path_;
  }

  // Collectives that might share a bucket with this one are started behind it, up to the bytes of a
  // bucket. (Here, too, one that was started ahead counts: it takes the others along.)
  void take_of_same_key(Place place) {
    const std::uint32_t key = collective_of(place).key;
    std::int64_t bytes = collective_of(place).bytes;
    std::vector<std::size_t> taken;
    for (std::size_t i = 0; i < off_path_.items().size(); ++i) {
      const Place other = off_path_.items()[i].place;
      if (is_scheduled_[other] || f_.roles[other] != InductorRole::kLaunch) continue;
      const InductorCollective& collective = collective_of(other);
      if (collective.key != key || bytes + collective.bytes > *knobs_.max_off_bucket_bytes) continue;
      bytes += collective.bytes;
      batch_.push_back(other);
      taken.push_back(i);
    }
    off_path_.remove(taken);
  }

  // ------------------------------------------------------------------------- nodes

  void take(Place i) {
    if (is_scheduled_[i]) return;
    switch (f_.roles[i]) {
      case InductorRole::kRank:
      case InductorRole::kInput:
        schedule(i);
        break;
      case InductorRole::kLaunch:
        start(i);
        break;
      case InductorRole::kWait:
        wait(i);
        break;
      case InductorRole::kCompute:
      case InductorRole::kOther:
        compute(i);
        break;
    }
    if (!is_off_path(i)) {
      last_on_path_ = std::max(last_on_path_, std::int64_t{i});
    } else if (f_.roles[i] == InductorRole::kLaunch) {
      potential_bytes_[collective_of(i).key] -= collective_of(i).bytes;
    }
  }

  void schedule(Place i) {
    EPWEAVE_CHECK(!is_scheduled_[i] && missing_[i] == 0);
    order_.push_back(i);
    is_scheduled_[i] = true;
    memory_.place(i);
    for (const Place user : p_.users[i])
      if (--missing_[user] == 0) add_ready(user);
  }

  void compute(Place i) {
    const bool is_compute = f_.roles[i] == InductorRole::kCompute;
    if (f_.ms[i] == 0 && !is_compute) return schedule(i);
    Credit credit = hide_in_flight(i, f_.ms[i] * knobs_.compute_overlap_multiplier, kNoPlace);
    start_ahead(i, credit, kNoPlace);
    schedule(i);
    if (!is_compute) return;
    ++computes_done_;
    activate();
  }

  void start(Place i) {
    const InductorCollective& collective = collective_of(i);
    CollectiveState& state = state_of(i);
    if (knobs_.discounts_latency && bucket_in_flight_[collective.bucket] > 0)
      state.exposed = std::max(0.0, state.exposed - collective.latency_ms);
    state.is_started = state.is_in_flight = true;
    if (collective.bucket != kNoBucketKey) ++bucket_in_flight_[collective.bucket];
    active_[collective.group].erase(f_.collective[i]);
    bytes_in_flight_ += collective.bytes;
    in_flight_.push_back(f_.collective[i]);
    in_flight_of_[collective.group].push_back(f_.collective[i]);
    if (state.exposed != 0) exposed_in_flight_.push_back(f_.collective[i]);
    schedule(i);
  }

  // Waiting for a collective waits for all in front of it on its group.
  void wait(Place i) {
    CollectiveState& state = state_of(i);
    if (!state.is_in_flight) return schedule(i);
    EPWEAVE_CHECK(!state.is_being_waited);
    state.is_being_waited = true;
    const InductorCollective& collective = collective_of(i);
    for (const std::uint32_t prior : in_front_of(f_.collective[i])) {
      const Place its_wait = f_.collectives[prior].wait;
      if (!is_scheduled_[its_wait] && missing_[its_wait] == 0) wait(its_wait);
    }
    if (state.exposed > 0) {
      Credit credit = hide_in_flight(i, state.exposed, collective.group);
      start_ahead(i, credit, collective.group);
    }
    land(f_.collective[i]);
    schedule(i);
    state.is_being_waited = false;
  }

  std::vector<std::uint32_t> in_front_of(std::uint32_t c) const {
    const auto& queue = in_flight_of_[f_.collectives[c].group];
    return {queue.begin(), std::ranges::find(queue, c)};
  }

  void land(std::uint32_t c) {
    const InductorCollective& collective = f_.collectives[c];
    states_[c].is_in_flight = false;
    bytes_in_flight_ -= collective.bytes;
    if (collective.bucket != kNoBucketKey) --bucket_in_flight_[collective.bucket];
    auto& queue = in_flight_of_[collective.group];
    queue.erase(std::ranges::find(queue, c));
    while (first_in_flight_ < in_flight_.size() && !states_[in_flight_[first_in_flight_]].is_in_flight)
      ++first_in_flight_;
  }

  // ------------------------------------------------------------------------- hiding

  // Each group has all of `ms`. Returns what is left of it; an excluded group has none.
  Credit hide_in_flight(Place node, double ms, std::uint32_t excluded) {
    Credit credit(p_.groups, 0.0);
    for (std::uint32_t group = 0; group < p_.groups; ++group)
      if (has_collective_[group] && group != excluded) credit[group] = ms;
    std::size_t kept = 0;
    for (const std::uint32_t c : exposed_in_flight_) {
      CollectiveState& state = states_[c];
      if (!state.is_in_flight || state.exposed == 0) continue;
      exposed_in_flight_[kept++] = c;
      double& left = credit[f_.collectives[c].group];
      if (state.is_being_waited || left <= 0) continue;
      const double hidden = std::min(state.exposed, left);
      state.exposed -= hidden;
      left -= hidden;
      state.hidden_by.push_back(node);
    }
    exposed_in_flight_.resize(kept);
    return credit;
  }

  // Starts collectives that `node` can hide.
  void start_ahead(Place node, Credit& credit, std::uint32_t excluded) {
    if (std::ranges::none_of(credit, [](double left) { return left > 0; })) return;
    const std::vector<Candidate> candidates = find_candidates(credit, excluded);
    depends_on_ = kNoPlace;
    for (const Candidate& candidate : candidates) {
      const InductorCollective& collective = f_.collectives[candidate.collective];
      CollectiveState& state = states_[candidate.collective];
      const double left = credit[collective.group];
      if (state.is_started || left <= 0 || exceeds_budget(collective)) continue;
      if (!make_room(node, collective, candidates) || state.is_started) continue;
      if (!schedule_path(node, collective.start) || state.is_started) continue;
      start(collective.start);
      add_prefetched(collective);
      const double hidden = std::min(left, state.exposed);
      state.exposed -= hidden;
      state.hidden_by.push_back(node);
      credit[collective.group] -= hidden;
      if (std::ranges::none_of(credit, [](double each) { return each != 0; })) return;
    }
  }

  // The first so many, in the order of their waits, of all groups that have credit.
  std::vector<Candidate> find_candidates(const Credit& credit, std::uint32_t excluded) {
    std::vector<std::pair<std::set<std::uint32_t>::const_iterator, std::set<std::uint32_t>::const_iterator>>
        lists;
    for (std::uint32_t group = 0; group < p_.groups; ++group)
      if (group != excluded && credit[group] > 0 && !active_[group].empty())
        lists.emplace_back(active_[group].begin(), active_[group].end());
    std::vector<Candidate> candidates;
    while (!lists.empty() && static_cast<std::int64_t>(candidates.size()) <
                                 std::max<std::int64_t>(knobs_.max_coll_distance, 1)) {
      auto least = std::ranges::min_element(lists, {}, [](const auto& list) { return *list.first; });
      candidates.push_back(rank(*least->first, credit));
      if (++least->first == least->second) lists.erase(least);
    }
    std::ranges::sort(candidates, std::less<>());
    if (knobs_.groups_by_bucket) group_by_key(candidates);
    return candidates;
  }

  Candidate rank(std::uint32_t c, const Credit& credit) const {
    const InductorCollective& collective = f_.collectives[c];
    const std::uint32_t needed_by = f_.needed_by[collective.start];
    int urgency = 2;
    if (needed_by == computes_done_ + 1) {
      urgency = 0;
    } else if (needed_by == kNeverNeeded) {
      urgency = f_.is_needed_by_scatter[collective.start] ? 1 : 3;
    }
    return {urgency, needed_by, -std::min(credit[collective.group], states_[c].exposed), collective.start, c};
  }

  // Those of one key together, where the first of them stands.
  void group_by_key(std::vector<Candidate>& candidates) const {
    std::vector<std::uint32_t> first(f_.keys, kNoPlace);
    for (std::uint32_t i = 0; i < candidates.size(); ++i) {
      std::uint32_t& at = first[f_.collectives[candidates[i].collective].key];
      at = std::min(at, i);
    }
    std::ranges::stable_sort(candidates, {}, [&](const Candidate& candidate) {
      return first[f_.collectives[candidate.collective].key];
    });
  }

  // ------------------------------------------------------------------------- memory

  bool exceeds_budget(const InductorCollective& collective) const {
    const std::uint32_t needed_by = f_.needed_by[collective.start];
    if (needed_by == kNeverNeeded) return false;
    if (budget_ && memory_.live() + collective.bytes > *budget_) return true;
    if (needed_by <= computes_done_) return false;
    std::int64_t most_ahead = 0, most_live = 0;
    for (std::uint32_t i = computes_done_; i < needed_by; ++i) {
      most_ahead = std::max(most_ahead, prefetched_[i]);
      most_live = std::max(most_live, given_live_[i] + prefetched_[i]);
    }
    return most_ahead + collective.bytes > knobs_.max_in_flight_bytes ||
           (budget_ && most_live + collective.bytes > *budget_);
  }

  void add_prefetched(const InductorCollective& collective) {
    const std::uint32_t needed_by = f_.needed_by[collective.start];
    if (needed_by == kNeverNeeded) return;
    for (std::uint32_t i = computes_done_; i < needed_by; ++i) prefetched_[i] += collective.bytes;
  }

  bool has_room(const InductorCollective& collective) const {
    return knobs_.max_in_flight_bytes - bytes_in_flight_ >= collective.bytes;
  }

  // Waits for the oldest collectives in flight, as far as they are hidden, until this one fits
  // beside the others.
  bool make_room(Place node, const InductorCollective& collective, const std::vector<Candidate>& candidates) {
    while (!has_room(collective) && first_in_flight_ < in_flight_.size()) {
      const std::uint32_t oldest = in_flight_[first_in_flight_];
      if (would_wait_twice(oldest) || !is_hidden(oldest, node) || missing_[f_.collectives[oldest].wait] != 0)
        break;
      if (depends(collective.start, node, candidates)) return false;
      wait(f_.collectives[oldest].wait);
    }
    return has_room(collective);
  }

  // At the front of the loop: the oldest in flight, hidden or not.
  bool force_oldest_wait() {
    if (first_in_flight_ == in_flight_.size()) return false;
    const Place its_wait = f_.collectives[in_flight_[first_in_flight_]].wait;
    if (missing_[its_wait] != 0 || is_scheduled_[its_wait]) return false;
    wait(its_wait);
    return true;
  }

  bool is_hidden(std::uint32_t c, Place node) const {
    const std::vector<Place>& by = states_[c].hidden_by;
    return states_[c].exposed == 0 && std::ranges::find(by, node) == by.end();
  }

  // Whether a wait for it would, for it or one in front of it, happen inside a wait that is being
  // handled.
  bool would_wait_twice(std::uint32_t c) const {
    if (states_[c].is_being_waited) return true;
    if (!states_[c].is_in_flight) return false;
    return std::ranges::any_of(in_front_of(c),
                               [&](std::uint32_t prior) { return states_[prior].is_being_waited; });
  }

  // ------------------------------------------------------------------------- paths

  // Whether `start` needs `node`, which is next to be scheduled: what stands behind it is found
  // once for all candidates.
  bool depends(Place start, Place node, const std::vector<Candidate>& candidates) {
    if (depends_on_ != node) {
      depends_on_ = node;
      Place last = node;
      for (const Candidate& candidate : candidates) last = std::max(last, candidate.start);
      ++depends_epoch_;
      stack_.assign(1, node);
      while (!stack_.empty()) {
        const Place at = stack_.back();
        stack_.pop_back();
        for (const Place user : p_.users[at])
          if (user <= last && std::exchange(depends_at_[user], depends_epoch_) != depends_epoch_)
            stack_.push_back(user);
      }
    }
    return depends_at_[start] == depends_epoch_;
  }

  // Schedules what the collective still needs, if that is neither compute, nor communication that
  // is not done. Whether it was.
  bool schedule_path(Place node, Place start) {
    if (f_.compute_before[start] > computes_done_) return false;
    std::vector<Place> path;
    if (!find_path(node, start, path)) return false;
    std::ranges::sort(path);
    for (const Place place : path) {
      if (is_scheduled_[place]) continue;
      if (f_.roles[place] == InductorRole::kWait) {
        wait(place);
      } else {
        schedule(place);
      }
    }
    return true;
  }

  bool find_path(Place node, Place start, std::vector<Place>& path) {
    ++seen_epoch_;
    stack_.assign(1, start);
    while (!stack_.empty()) {
      const Place at = stack_.back();
      stack_.pop_back();
      for (const Place input : p_.inputs[at]) {
        if (is_scheduled_[input] || std::exchange(seen_at_[input], seen_epoch_) == seen_epoch_) continue;
        if (input == node || !may_be_on_path(node, input)) return false;
        path.push_back(input);
        stack_.push_back(input);
      }
    }
    return true;
  }

  bool may_be_on_path(Place node, Place i) const {
    switch (f_.roles[i]) {
      case InductorRole::kCompute:
      case InductorRole::kLaunch:
        return false;
      case InductorRole::kWait:
        return !would_wait_twice(f_.collective[i]) && is_hidden(f_.collective[i], node);
      case InductorRole::kRank:
      case InductorRole::kInput:
      case InductorRole::kOther:
        return !f_.blocks_path[i];
    }
    return false;
  }

  // ------------------------------------------------------------------------- result

  InductorOrder report() {
    InductorOrder result{.collectives = states_.size(), .given_peak = given_peak_, .peak = memory_.peak()};
    for (std::size_t c = 0; c < states_.size(); ++c) {
      const double ms = f_.collectives[c].ms;
      if (states_[c].exposed == ms) ++result.exposed;
      result.exposed_ms += states_[c].exposed;
      result.collective_ms += ms;
      result.hiding.push_back({states_[c].exposed, each_once(states_[c].hidden_by)});
    }
    result.scheduled = order_;
    // Inputs, and what follows from the rank, in the given order; the output last.
    const auto section = [&](Place i) {
      if (f_.roles[i] == InductorRole::kInput || f_.roles[i] == InductorRole::kRank) return 0;
      return i + 1 == p_.size() ? 2 : 1;
    };
    std::ranges::stable_sort(order_, {}, section);
    std::sort(order_.begin(), std::ranges::find_if(order_, [&](Place i) { return section(i) != 0; }));
    result.order = std::move(order_);
    return result;
  }

  static std::vector<Place> each_once(std::span<const Place> places) {
    std::vector<Place> once;
    for (const Place place : places)
      if (std::ranges::find(once, place) == once.end()) once.push_back(place);
    return once;
  }

  const ScheduleProblem& p_;
  const InductorKnobs& knobs_;
  const InductorFacts& f_;
  InductorMemory given_memory_, memory_;
  std::vector<std::int64_t> given_live_;  // by compute node: the most behind the compute node before it
  std::vector<std::int64_t>
      prefetched_;  // by compute node: bytes started ahead that something behind it needs
  std::int64_t given_peak_ = 0;
  std::optional<std::int64_t> budget_;

  PythonHeap<ReadyNode> on_path_, off_path_;
  std::vector<Place> batch_;
  std::vector<std::uint32_t> missing_;  // by place: what must come before it and is not scheduled
  std::vector<bool> is_scheduled_;
  std::vector<Place> order_;
  std::int64_t last_on_path_ =
      -1;  // the last place, in the given order, that was taken and some compute node needs
  std::uint32_t computes_done_ = 0;

  std::vector<CollectiveState> states_;
  std::vector<std::int64_t> potential_bytes_;    // by key: of ready collectives that no compute node needs
  std::vector<std::set<std::uint32_t>> active_;  // by group: in reach and not started, by their waits
  std::vector<std::uint32_t> by_need_;           // what compute nodes need, by which needs it first
  std::size_t next_by_need_ = 0;                 // the first that is out of reach
  std::vector<std::uint32_t> in_flight_;         // and what was in flight, in the order of their launches
  std::size_t first_in_flight_ = 0;              // the oldest in flight
  std::vector<std::vector<std::uint32_t>> in_flight_of_;  // by group
  std::vector<std::uint32_t> exposed_in_flight_;          // and some that are not any more
  std::map<std::uint32_t, std::uint32_t> bucket_in_flight_;
  std::vector<bool> has_collective_;  // by group
  std::int64_t bytes_in_flight_ = 0;

  Place depends_on_ = kNoPlace;
  std::uint32_t depends_epoch_ = 0, seen_epoch_ = 0;
  std::vector<std::uint32_t> depends_at_, seen_at_;
  std::vector<Place> stack_;
};

}  // namespace

InductorOrder order_like_inductor(const Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                                  const InductorFacts& facts, const InductorKnobs& knobs) {
  return InductorScheduler(graph, model, problem, facts, knobs).run();
}

}  // namespace epweave
