#include "passes/schedule/inductor_order.h"

#include <algorithm>
#include <compare>
#include <span>
#include <utility>

#include "base/error.h"
#include "passes/schedule/inductor_budget.h"
#include "passes/schedule/inductor_candidates.h"
#include "passes/schedule/inductor_flight.h"
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

// What must execute behind a node, up to a place; found once for all that is asked of the same node
// in a row.
class Followers {
 public:
  explicit Followers(const PlaceLists& users) : users_(users), seen_at_(users.size()) {}

  bool has(Place place, Place node, Place last) {
    if (node_ != node || last_ != last) {
      node_ = node;
      last_ = last;
      find();
    }
    return seen_at_[place] == epoch_;
  }

 private:
  void find() {
    ++epoch_;
    stack_.assign(1, node_);
    while (!stack_.empty()) {
      const Place at = stack_.back();
      stack_.pop_back();
      for (const Place user : users_[at])
        if (user <= last_ && std::exchange(seen_at_[user], epoch_) != epoch_) stack_.push_back(user);
    }
  }

  const PlaceLists& users_;
  Place node_ = kNoPlace, last_ = kNoPlace;
  std::uint32_t epoch_ = 0;
  std::vector<std::uint32_t> seen_at_;
  std::vector<Place> stack_;
};

class InductorScheduler {
 public:
  InductorScheduler(const Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                    const InductorFacts& facts, const InductorKnobs& knobs)
      : p_(problem),
        knobs_(knobs),
        f_(facts),
        memory_(graph, model),
        budget_(memory_, facts, knobs),
        flight_(facts, problem.groups, knobs.discounts_latency),
        candidates_(facts, problem.groups, knobs),
        followers_(problem.users),
        missing_(problem.size()),
        is_scheduled_(problem.size()),
        potential_bytes_(facts.keys),
        seen_at_(problem.size()) {
    candidates_.set_done(0, flight_);
  }

  InductorOrder run() {
    seed();
    while (!on_path_.empty() || !off_path_.empty()) {
      if (flight_.bytes() >= knobs_.max_in_flight_bytes && force_oldest_wait()) continue;
      take_next();
      for (const Place place : batch_) take(place);
    }
    EPWEAVE_CHECK(order_.size() == p_.size());
    return report();
  }

 private:
  using Credit = InductorFlight::Credit;

  // ------------------------------------------------------------------------- queues

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

  bool is_off_path(Place i) const { return f_.needed_by[i] == kNeverNeeded; }
  const InductorCollective& collective_of(Place i) const { return f_.collectives[f_.collective[i]]; }
  double exposed(Place i) const { return flight_[f_.collective[i]].exposed; }

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
    if (f_.roles[i] == InductorRole::kWait) return exposed(i) != 0 ? 1 : 0;
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
    if (f_.roles[i] == InductorRole::kWait) return exposed(i) == 0 || budget_.is_exceeded(memory_.live());
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
    Credit credit = flight_.hide(i, f_.ms[i] * knobs_.compute_overlap_multiplier, kNoPlace);
    start_ahead(i, credit, kNoPlace);
    schedule(i);
    if (!is_compute) return;
    candidates_.set_done(++computes_done_, flight_);
  }

  void start(Place i) {
    flight_.start(f_.collective[i]);
    candidates_.remove(f_.collective[i]);
    schedule(i);
  }

  // Waiting for a collective waits for all in front of it on its group.
  void wait(Place i) {
    const std::uint32_t c = f_.collective[i];
    if (!flight_[c].is_in_flight) return schedule(i);
    EPWEAVE_CHECK(!flight_[c].is_being_waited);
    flight_.begin_wait(c);
    for (const std::uint32_t prior : flight_.list_in_front_of(c)) {
      const Place its_wait = f_.collectives[prior].wait;
      if (!is_scheduled_[its_wait] && missing_[its_wait] == 0) wait(its_wait);
    }
    if (flight_[c].exposed > 0) {
      Credit credit = flight_.hide(i, flight_[c].exposed, f_.collectives[c].group);
      start_ahead(i, credit, f_.collectives[c].group);
    }
    flight_.land(c);
    schedule(i);
    flight_.end_wait(c);
  }

  // Starts collectives that `node` can hide.
  void start_ahead(Place node, Credit& credit, std::uint32_t excluded) {
    if (std::ranges::none_of(credit, [](double left) { return left > 0; })) return;
    const std::vector<std::uint32_t> candidates = candidates_.list(flight_, credit, excluded);
    Place last = node;
    for (const std::uint32_t c : candidates) last = std::max(last, f_.collectives[c].start);
    for (const std::uint32_t c : candidates) {
      const InductorCollective& collective = f_.collectives[c];
      if (flight_[c].is_started || credit[collective.group] <= 0 ||
          budget_.would_exceed(collective, computes_done_, memory_.live()))
        continue;
      if (!make_room(node, collective, last) || flight_[c].is_started) continue;
      if (!schedule_path(node, collective.start) || flight_[c].is_started) continue;
      start(collective.start);
      budget_.add(collective, computes_done_);
      flight_.hide_one(c, node, credit);
      if (std::ranges::none_of(credit, [](double each) { return each != 0; })) return;
    }
  }

  // ------------------------------------------------------------------------- room

  bool has_room(const InductorCollective& collective) const {
    return knobs_.max_in_flight_bytes - flight_.bytes() >= collective.bytes;
  }

  // Waits for the oldest collectives in flight, as far as they are hidden, until this one fits
  // beside the others. `last`: the last launch that is tried under the node.
  bool make_room(Place node, const InductorCollective& collective, Place last) {
    while (!has_room(collective)) {
      const auto oldest = flight_.find_oldest();
      if (!oldest || flight_.would_wait_twice(*oldest) || !flight_.is_hidden(*oldest, node) ||
          missing_[f_.collectives[*oldest].wait] != 0)
        break;
      if (followers_.has(collective.start, node, last)) return false;
      wait(f_.collectives[*oldest].wait);
    }
    return has_room(collective);
  }

  // At the front of the loop: the oldest in flight, hidden or not.
  bool force_oldest_wait() {
    const auto oldest = flight_.find_oldest();
    if (!oldest) return false;
    const Place its_wait = f_.collectives[*oldest].wait;
    if (missing_[its_wait] != 0 || is_scheduled_[its_wait]) return false;
    wait(its_wait);
    return true;
  }

  // ------------------------------------------------------------------------- paths

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
        return !flight_.would_wait_twice(f_.collective[i]) && flight_.is_hidden(f_.collective[i], node);
      case InductorRole::kRank:
      case InductorRole::kInput:
      case InductorRole::kOther:
        return !f_.blocks_path[i];
    }
    return false;
  }

  // ------------------------------------------------------------------------- result

  InductorOrder report() {
    InductorOrder result{
        .collectives = flight_.size(), .given_peak = budget_.given_peak(), .peak = memory_.peak()};
    for (std::uint32_t c = 0; c < flight_.size(); ++c) {
      const double ms = f_.collectives[c].ms, exposed = flight_[c].exposed;
      if (exposed == ms) ++result.exposed;
      result.exposed_ms += exposed;
      result.collective_ms += ms;
      result.hiding.push_back({exposed, each_once(flight_[c].hidden_by)});
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
  InductorMemory memory_;
  InductorBudget budget_;
  InductorFlight flight_;
  InductorCandidates candidates_;
  Followers followers_;

  PythonHeap<ReadyNode> on_path_, off_path_;
  std::vector<Place> batch_;
  std::vector<std::uint32_t> missing_;  // by place: what must come before it and is not scheduled
  std::vector<bool> is_scheduled_;
  std::vector<Place> order_;
  // The last place, in the given order, that was taken and some compute node needs.
  std::int64_t last_on_path_ = -1;
  std::uint32_t computes_done_ = 0;
  std::vector<std::int64_t> potential_bytes_;  // by key: of ready collectives that no compute node needs

  std::uint32_t seen_epoch_ = 0;
  std::vector<std::uint32_t> seen_at_;
  std::vector<Place> stack_;
};

}  // namespace

InductorOrder order_like_inductor(const Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                                  const InductorFacts& facts, const InductorKnobs& knobs) {
  return InductorScheduler(graph, model, problem, facts, knobs).run();
}

}  // namespace epweave
