#include "passes/schedule/inductor_order.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "passes/schedule/inductor_budget.h"
#include "passes/schedule/inductor_candidates.h"
#include "passes/schedule/inductor_flight.h"
#include "passes/schedule/inductor_memory.h"
#include "passes/schedule/inductor_paths.h"
#include "passes/schedule/inductor_ready.h"

namespace epweave {
namespace {

// The order as it grows: each step of it is told to those who keep account of memory, of what is in
// flight, of what may be started ahead, and of what is ready.
class GreedyOrder {
 public:
  GreedyOrder(const Graph& graph, const StepModel& model, const ScheduleProblem& problem,
              const InductorFacts& facts, const InductorKnobs& knobs)
      : p_(problem),
        knobs_(knobs),
        f_(facts),
        missing_(problem.size()),
        is_scheduled_(problem.size()),
        memory_(graph, model),
        budget_(memory_, facts, knobs),
        flight_(facts, problem.groups, knobs.discounts_latency),
        candidates_(facts, problem.groups, knobs),
        ready_(facts, knobs, flight_, is_scheduled_),
        paths_(problem, facts, flight_, is_scheduled_),
        followers_(problem.users) {
    candidates_.set_done(0, flight_);
  }

  void make() {
    seed();
    while (!ready_.empty()) {
      if (flight_.bytes() >= knobs_.max_in_flight_bytes && force_oldest_wait()) continue;
      for (const Place place : ready_.pop(budget_.is_exceeded(memory_.live()))) take(place);
    }
    EPWEAVE_CHECK(order_.size() == p_.size());
  }

  const std::vector<Place>& order() const { return order_; }
  const InductorFlight& flight() const { return flight_; }
  std::int64_t given_peak() const { return budget_.given_peak(); }
  std::int64_t peak() const { return memory_.peak(); }

 private:
  using Credit = InductorFlight::Credit;

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
      if (missing_[i] == 0 && f_.roles[i] != InductorRole::kRank) ready_.add(i);
  }

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
    ready_.note_taken(i);
  }

  void schedule(Place i) {
    EPWEAVE_CHECK(!is_scheduled_[i] && missing_[i] == 0);
    order_.push_back(i);
    is_scheduled_[i] = true;
    memory_.place(i);
    for (const Place user : p_.users[i])
      if (--missing_[user] == 0) ready_.add(user);
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

  // Schedules what the collective still needs, if that can be done under the node. Whether it was.
  bool schedule_path(Place node, Place start) {
    if (f_.compute_before[start] > computes_done_) return false;
    const auto path = paths_.find(node, start);
    if (!path) return false;
    for (const Place place : *path) {
      if (is_scheduled_[place]) continue;
      if (f_.roles[place] == InductorRole::kWait) {
        wait(place);
      } else {
        schedule(place);
      }
    }
    return true;
  }

  const ScheduleProblem& p_;
  const InductorKnobs& knobs_;
  const InductorFacts& f_;
  std::vector<std::uint32_t> missing_;  // by place: what must come before it and is not scheduled
  std::vector<bool> is_scheduled_;
  std::vector<Place> order_;
  std::uint32_t computes_done_ = 0;
  InductorMemory memory_;
  InductorBudget budget_;
  InductorFlight flight_;
  InductorCandidates candidates_;
  InductorReady ready_;
  InductorPaths paths_;
  InductorFollowers followers_;
};

std::vector<Place> each_once(std::span<const Place> places) {
  std::vector<Place> once;
  for (const Place place : places)
    if (std::ranges::find(once, place) == once.end()) once.push_back(place);
  return once;
}

// Inputs, and what follows from the rank, in the given order in front; the output last.
std::vector<Place> put_ends_in_place(std::vector<Place> order, const InductorFacts& facts) {
  const auto section = [&](Place i) {
    if (facts.roles[i] == InductorRole::kInput || facts.roles[i] == InductorRole::kRank) return 0;
    return i + 1 == facts.roles.size() ? 2 : 1;
  };
  std::ranges::stable_sort(order, {}, section);
  std::sort(order.begin(), std::ranges::find_if(order, [&](Place i) { return section(i) != 0; }));
  return order;
}

// What its own arithmetic says of the collectives.
void count_hiding(const InductorFlight& flight, const InductorFacts& facts, InductorOrder& result) {
  result.collectives = flight.size();
  for (std::uint32_t c = 0; c < flight.size(); ++c) {
    const double ms = facts.collectives[c].ms, exposed = flight[c].exposed;
    if (exposed == ms) ++result.exposed;
    result.exposed_ms += exposed;
    result.collective_ms += ms;
    result.hiding.push_back({exposed, each_once(flight[c].hidden_by)});
  }
}

}  // namespace

InductorOrder order_like_inductor(const Graph& graph, const StepModel& model, const ScheduleProblem& problem,
                                  const InductorFacts& facts, const InductorKnobs& knobs) {
  GreedyOrder made(graph, model, problem, facts, knobs);
  made.make();
  InductorOrder result{.order = put_ends_in_place(made.order(), facts),
                       .scheduled = made.order(),
                       .given_peak = made.given_peak(),
                       .peak = made.peak()};
  count_hiding(made.flight(), facts, result);
  return result;
}

}  // namespace epweave
