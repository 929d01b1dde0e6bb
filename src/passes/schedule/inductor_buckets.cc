#include "passes/schedule/inductor_buckets.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "passes/schedule/inductor_reach.h"
#include "passes/schedule/inductor_timeline.h"

namespace epweave {
namespace {

constexpr std::int64_t kMostBytes = 2 * kInductorGb;  // of a bucket
constexpr std::int64_t kMostFailures = 20;            // one after the other; and places between exposed ones

class InductorBucketer {
 public:
  InductorBucketer(const StepModel& model, const ScheduleProblem& problem, const InductorFacts& facts,
                   const InductorOrder& order, const InductorKnobs& knobs, const std::vector<bool>& may_merge)
      : m_(model),
        f_(facts),
        hiding_(order.hiding),
        knobs_(knobs),
        may_merge_(may_merge),
        reach_(std::make_shared<InductorReach>(problem.inputs, facts, order)),
        dependences_(std::make_unique<InductorDependences>(
            problem.inputs, [reach = reach_](Place a, Place b) { return reach->leads(a, b); })),
        timelines_(facts, order, *dependences_),
        position_(problem.size()),
        hides_(problem.size()) {
    for (std::uint32_t i = 0; i < order.scheduled.size(); ++i) position_[order.scheduled[i]] = i;
    add_hiding();
  }

  InductorBuckets run() {
    const std::set<std::uint32_t> internode = find_internode();
    for (const std::uint32_t group : timelines_.groups()) {
      if (knobs_.bucket_only_internode && !internode.contains(group)) continue;
      timelines_.turn_to(group);
      is_exposed_first_ = knobs_.bucket_exposed_first.value_or(internode.contains(group));
      for (const auto& alike : list_alike(group)) fill_buckets(alike);
    }
    return {std::move(buckets_), std::move(dependences_)};
  }

 private:
  const InductorCollective& collective(std::uint32_t c) const { return f_.collectives[c]; }

  // What is hidden as a whole stays around all that hides it.
  void add_hiding() {
    for (std::uint32_t c = 0; c < f_.collectives.size(); ++c) {
      if (hiding_[c].exposed != 0) continue;
      for (const Place by : hiding_[c].hidden_by) {
        dependences_->add(by, collective(c).start);
        dependences_->add(collective(c).wait, by);
        hides_[by] = true;
      }
    }
  }

  // Groups whose first gather is of one input alone: taken to be those of sharded parameters, which
  // reach between nodes.
  std::set<std::uint32_t> find_internode() const {
    std::set<std::uint32_t> known, internode;
    for (const InductorCollective& each : f_.collectives) {
      if (!each.is_gather || !known.insert(each.group).second) continue;
      if (count_inputs(each.start) == 1) internode.insert(each.group);
    }
    return internode;
  }

  // Of the step, that a node is computed from; 2 where they are more.
  int count_inputs(Place node) const {
    std::set<Place> seen;
    std::vector<Place> stack{node};
    int inputs = 0;
    while (!stack.empty() && inputs < 2) {
      const Place at = stack.back();
      stack.pop_back();
      if (!seen.insert(at).second) continue;
      if (f_.roles[at] == InductorRole::kInput) ++inputs;
      for (const Place input : m_.inputs[at])
        if (f_.roles[input] != InductorRole::kRank) stack.push_back(input);  // a group is looked up in a mesh
    }
    return inputs;
  }

  // Collectives of each key, in the order in which they are tried.
  std::vector<std::vector<std::uint32_t>> list_alike(std::uint32_t group) const {
    std::vector<std::vector<std::uint32_t>> alike;
    for (std::uint32_t c = 0; c < f_.collectives.size(); ++c) {
      const InductorCollective& each = collective(c);
      if (each.group != group || each.bucket == kNoBucketKey || !may_merge_[c]) continue;
      const auto same = std::ranges::find_if(
          alike, [&](const auto& list) { return collective(list.front()).key == each.key; });
      (same != alike.end() ? *same : alike.emplace_back()).push_back(c);
    }
    for (std::vector<std::uint32_t>& list : alike)
      std::ranges::sort(list, {}, [&](std::uint32_t c) {
        return std::pair(is_exposed_first_ ? hidden_share(c) : 0.0, position_[collective(c).start]);
      });
    return alike;
  }

  double hidden_share(std::uint32_t c) const {
    const double ms = collective(c).ms;
    return ms <= 0 ? 0.0 : (ms - hiding_[c].exposed) / ms;
  }

  // -------------------------------------------------------------------------

  void fill_buckets(const std::vector<std::uint32_t>& alike) {
    std::set<std::uint32_t> done;
    for (std::size_t i = 0; i < alike.size(); ++i) {
      if (done.contains(alike[i]) || hides_something(alike[i])) continue;
      done.insert(alike[i]);
      bucket_ = {alike[i]};
      fill_bucket(std::span(alike).subspan(i + 1), done);
      if (bucket_.size() > 1) buckets_.push_back(bucket_);
    }
  }

  void fill_bucket(std::span<const std::uint32_t> candidates, std::set<std::uint32_t>& done) {
    const std::size_t most = static_cast<std::size_t>(knobs_.max_coll_distance);
    std::int64_t bytes = collective(bucket_.front()).bytes, failures = 0;
    for (const std::uint32_t candidate : candidates.first(std::min(most, candidates.size()))) {
      if (bytes + collective(candidate).bytes > kMostBytes) return;
      if (done.contains(candidate) || (is_exposed_first_ && is_far(candidate))) continue;
      if (!try_merge(candidate)) {
        if (++failures >= kMostFailures) return;
        continue;
      }
      failures = 0;
      bucket_.push_back(candidate);
      bytes += collective(candidate).bytes;
      done.insert(candidate);
    }
  }

  bool is_far(std::uint32_t candidate) const {
    return std::abs(std::int64_t{position_[collective(candidate).start]} -
                    std::int64_t{position_[collective(bucket_.front()).start]}) > kMostFailures;
  }
  bool hides_something(std::uint32_t c) const {
    return hides_[collective(c).start] || hides_[collective(c).wait];
  }

  bool try_merge(std::uint32_t candidate) {
    if (hides_something(candidate)) return false;
    for (const std::uint32_t member : bucket_)
      if (conflicts(member, candidate) || conflicts(candidate, member)) return false;
    const InductorCollective &first = collective(bucket_.front()), &other = collective(candidate);
    for (const auto& [start, wait] : {std::pair(first.start, other.wait), std::pair(first.start, first.wait),
                                      std::pair(other.start, other.wait), std::pair(other.start, first.wait)})
      if (try_place(candidate, start, wait)) return true;
    return false;
  }

  // Whether b, or what hides it, needs a.
  bool conflicts(std::uint32_t a, std::uint32_t b) const {
    const InductorCollective &first = collective(a), &second = collective(b);
    return reach_->leads(first.start, second.start) || reach_->leads(first.wait, second.wait) ||
           std::ranges::any_of(hiding_[b].hidden_by, [&](Place by) { return reach_->leads(first.wait, by); });
  }

  bool try_place(std::uint32_t candidate, Place start, Place wait) {
    if (!keeps_hidden(candidate, start, wait)) return false;
    const InductorCollective &first = collective(bucket_.front()), &other = collective(candidate);
    const auto start_moved = timelines_.take_out(start == first.start ? other.start : first.start);
    if (is_ordered(first.start, other.start)) {
      timelines_.put_back(start_moved);
      return false;
    }
    dependences_->merge(first.start, other.start);
    const auto wait_moved = timelines_.take_out(wait == first.wait ? other.wait : first.wait);
    if (is_ordered(first.wait, other.wait)) {
      timelines_.put_back(wait_moved);
      dependences_->separate(other.start);
      timelines_.put_back(start_moved);
      return false;
    }
    dependences_->merge(first.wait, other.wait);
    timelines_.join(start, {first.start, other.start});
    timelines_.join(wait, {first.wait, other.wait});
    return true;
  }

  bool is_ordered(Place a, Place b) { return dependences_->has_path(a, b) || dependences_->has_path(b, a); }

  // Whether what hides the members is between start and wait, and no collective is enclosed by
  // another's time before it is hidden.
  bool keeps_hidden(std::uint32_t candidate, Place start, Place wait) const {
    std::vector<std::uint32_t> members{candidate};
    members.insert(members.end(), bucket_.begin(), bucket_.end());
    const std::uint32_t begin = timelines_.position(start), end = timelines_.position(wait);
    std::vector<Interval> times{{begin, end}}, hidden;
    for (const std::uint32_t member : members)
      for (const Place by : hiding_[member].hidden_by) {
        const std::uint32_t at = timelines_.position(by);
        if (begin >= at || at >= end) return false;
        hidden.push_back({begin, at});
      }
    list_passed(candidate, start, wait, times, hidden);
    for (const Interval& inner : hidden)
      for (const Interval& outer : times)
        if (outer.first < inner.first && inner.second < outer.second) return false;
    return true;
  }

  using Interval = std::pair<std::uint32_t, std::uint32_t>;  // positions on the time line

  // Of other collectives with a launch or wait that a launch or wait moves over: from launch to
  // wait, and from launch to what hides it.
  void list_passed(std::uint32_t candidate, Place start, Place wait, std::vector<Interval>& times,
                   std::vector<Interval>& hidden) const {
    const InductorCollective &first = collective(bucket_.front()), &other = collective(candidate);
    const std::uint32_t latest_start =
        std::max(timelines_.position(first.start), timelines_.position(other.start));
    const std::uint32_t earliest_wait =
        std::min(timelines_.position(first.wait), timelines_.position(other.wait));
    const auto list = [&](Place passed) {
      const std::uint32_t c = f_.collective[passed];
      if (f_.roles[passed] != InductorRole::kLaunch && f_.roles[passed] != InductorRole::kWait) return;
      if (collective(c).group != other.group || is_member(passed, candidate)) return;
      const std::uint32_t begin = timelines_.position(collective(c).start);
      times.emplace_back(begin, timelines_.position(collective(c).wait));
      for (const Place by : hiding_[c].hidden_by) hidden.emplace_back(begin, timelines_.position(by));
    };
    timelines_.visit_behind(start, latest_start, list);
    timelines_.visit_in_front(wait, earliest_wait, list);
  }

  bool is_member(Place node, std::uint32_t candidate) const {
    const auto is_of = [&](std::uint32_t c) {
      return node == collective(c).start || node == collective(c).wait;
    };
    return is_of(candidate) || std::ranges::any_of(bucket_, is_of);
  }

  const StepModel& m_;
  const InductorFacts& f_;
  const std::vector<InductorHiding>& hiding_;
  const InductorKnobs& knobs_;
  const std::vector<bool>& may_merge_;
  std::shared_ptr<InductorReach> reach_;
  std::unique_ptr<InductorDependences> dependences_;
  InductorTimelines timelines_;
  std::vector<std::uint32_t> position_;  // by place: in the order as it was found
  std::vector<bool> hides_;              // by place: it hides a collective that is hidden as a whole
  bool is_exposed_first_ = false;
  std::vector<std::uint32_t> bucket_;
  std::vector<std::vector<std::uint32_t>> buckets_;
};

}  // namespace

InductorBuckets find_inductor_buckets(const StepModel& model, const ScheduleProblem& problem,
                                      const InductorFacts& facts, const InductorOrder& order,
                                      const InductorKnobs& knobs, const std::vector<bool>& may_merge) {
  return InductorBucketer(model, problem, facts, order, knobs, may_merge).run();
}

}  // namespace epweave
