#include "passes/overlap_ep/overlap_ep_movement.h"

#include <algorithm>

namespace epweave {
namespace {

// When a node executes: 0 before the first phase, k in the k-th. A phase of token-count copies is a
// time for each copy, for the last one must be last.
using Time = std::uint32_t;

// The most nodes kept so far, by the latest time among them: range additions and maxima over
// prefixes.
class KeptCounts {
 public:
  explicit KeptCounts(Time times) {
    while (leaves_ < times) leaves_ *= 2;
    best_.assign(2 * leaves_, kNever);
    added_.assign(2 * leaves_, 0);
    set(0, 0);
  }

  struct Best {
    std::int64_t count;
    Time time;
  };

  // The best in [0, end).
  Best find_best(Time end) const {
    Best best{kNever, 0};
    find_best(1, {0, leaves_}, end, 0, best);
    return best;
  }

  void add_one(Time first, Time last) { add_one(1, {0, leaves_}, {first, last + 1}); }

  // The count at `time` becomes this one.
  void set(Time time, std::int64_t count) {
    std::int64_t above = 0;
    for (std::size_t i = leaves_ + time; i > 1; i /= 2) above += added_[i / 2];
    std::size_t i = leaves_ + time;
    added_[i] = 0;
    best_[i] = count - above;
    while ((i /= 2) > 0) pull(i);
  }

  std::int64_t get(Time time) const {
    std::int64_t count = best_[leaves_ + time];
    for (std::size_t i = (leaves_ + time) / 2; i > 0; i /= 2) count += added_[i];
    return count;
  }

 private:
  static constexpr std::int64_t kNever = -(std::int64_t{1} << 40);

  struct Range {
    Time begin, end;
  };

  void pull(std::size_t i) { best_[i] = std::max(best_[2 * i], best_[2 * i + 1]) + added_[i]; }

  void add_one(std::size_t i, Range here, Range wanted) {
    if (wanted.end <= here.begin || here.end <= wanted.begin) return;
    if (wanted.begin <= here.begin && here.end <= wanted.end) {
      ++best_[i];
      ++added_[i];
      return;
    }
    const Time middle = (here.begin + here.end) / 2;
    add_one(2 * i, {here.begin, middle}, wanted);
    add_one(2 * i + 1, {middle, here.end}, wanted);
    pull(i);
  }

  void find_best(std::size_t i, Range here, Time end, std::int64_t above, Best& best) const {
    if (end <= here.begin || best_[i] + above <= best.count) return;
    if (i >= leaves_) {
      best = {best_[i] + above, here.begin};
      return;
    }
    const Time middle = (here.begin + here.end) / 2;
    find_best(2 * i, {here.begin, middle}, end, above + added_[i], best);
    find_best(2 * i + 1, {middle, here.end}, end, above + added_[i], best);
  }

  Time leaves_ = 1;
  std::vector<std::int64_t> best_, added_;  // best_ includes added_ of the same place, not of those above
};

class FewestMoves {
 public:
  FewestMoves(const Body& body, const NodeLists& inputs, std::span<const OrderEdge> edges)
      : inputs_(inputs),
        order_(body.order),
        position_(find_positions(body, body.order)),
        slots_(body.nodes.size(), Slot()) {
    std::vector<std::pair<NodeId, NodeId>> pairs;
    pairs.reserve(edges.size());
    for (const OrderEdge& edge : edges) pairs.emplace_back(edge.after, edge.before);
    effects_ = list_pairs(body.nodes.size(), pairs);
  }

  // Whether the phases can be met.
  bool apply(const RegionSchedule& schedule) {
    number_phases(schedule);
    if (!find_times()) return false;
    sort_by_time(choose_times());
    return true;
  }

  std::vector<NodeId> take_order() { return std::move(order_); }

 private:
  static constexpr std::uint32_t kNoRegion = ~0U;

  struct Slot {
    std::uint32_t region = kNoRegion;  // that the node is a body node of, counted over apply()
    Time time = 0;
  };

  // What the nodes of a region applied earlier, met so far in a sweep, hand on to those of its
  // later phases.
  struct Sweep {
    std::uint32_t region = kNoRegion;
    Time phase = 0;    // of that region
    Time met = 0;      // by the nodes of this phase
    Time carried = 0;  // by those of the phases passed
  };

  void number_phases(const RegionSchedule& schedule) {
    ++region_;
    last_time_ = 0;
    first_ = static_cast<std::uint32_t>(order_.size());
    end_ = 0;
    for (const Phase& phase : schedule.phases) {
      ++last_time_;
      for (std::size_t i = 0; i < phase.nodes.size(); ++i) {
        if (phase.kind == PhaseKind::kCopy && i > 0) ++last_time_;
        slots_.at(phase.nodes[i]) = {region_, last_time_};
        first_ = std::min(first_, position_[phase.nodes[i]]);
        end_ = std::max(end_, position_[phase.nodes[i]] + 1);
      }
    }
  }

  // The earliest and the latest time of each node of the range; whether there is one for every
  // node.
  bool find_times() {
    const std::size_t size = end_ - first_;
    earliest_.assign(size, 0);
    latest_.assign(size, last_time_);
    std::vector<Sweep> sweeps(region_ + 1);
    for (std::uint32_t i = 0; i < size; ++i) find_earliest(i, sweeps);
    sweeps.assign(region_ + 1, Sweep());
    for (Sweep& sweep : sweeps) sweep.met = sweep.carried = last_time_;
    for (auto i = static_cast<std::uint32_t>(size); i-- > 0;) find_latest(i, sweeps);
    for (std::size_t i = 0; i < size; ++i)
      if (earliest_[i] > latest_[i]) return false;
    return true;
  }

  void find_earliest(std::uint32_t i, std::vector<Sweep>& sweeps) {
    const NodeId id = order_[first_ + i];
    Time& time = earliest_[i];
    for_each_dependence(i, [&](std::uint32_t dep) { time = std::max(time, earliest_[dep]); });
    const Slot& slot = slots_[id];
    if (slot.region == region_) time = std::max(time, slot.time);
    if (slot.region == kNoRegion || slot.region == region_) return;
    Sweep& sweep = sweeps[slot.region];
    if (slot.time != sweep.phase) sweep = {slot.region, slot.time, 0, std::max(sweep.carried, sweep.met)};
    time = std::max(time, sweep.carried);
    sweep.met = std::max(sweep.met, time);
  }

  // Gives what the node may do on to what it depends on.
  void find_latest(std::uint32_t i, std::vector<Sweep>& sweeps) {
    const NodeId id = order_[first_ + i];
    Time& time = latest_[i];
    const Slot& slot = slots_[id];
    if (slot.region == region_) time = std::min(time, slot.time);
    if (slot.region != kNoRegion && slot.region != region_) {
      Sweep& sweep = sweeps[slot.region];
      if (slot.time != sweep.phase)
        sweep = {slot.region, slot.time, last_time_, std::min(sweep.carried, sweep.met)};
      time = std::min(time, sweep.carried);
      sweep.met = std::min(sweep.met, time);
    }
    for_each_dependence(i, [&](std::uint32_t dep) { latest_[dep] = std::min(latest_[dep], time); });
  }

  // The places in the range of what node i of the range depends on.
  template <class Visit>
  void for_each_dependence(std::uint32_t i, const Visit& visit) const {
    const NodeId id = order_[first_ + i];
    for (const auto list : {inputs_[id], effects_[id]})
      for (NodeId dep : list)
        if (position_[dep] >= first_) visit(position_[dep] - first_);
  }

  // For each node of the range the time it executes at, the most nodes keeping their order.
  std::vector<Time> choose_times() const {
    const std::size_t size = end_ - first_;
    KeptCounts counts(last_time_ + 1);
    std::vector<Time> came_from(size);  // of a node kept at its earliest time: the latest time kept before it
    for (std::size_t i = 0; i < size; ++i) {
      const Time lo = earliest_[i], hi = latest_[i];
      came_from[i] = lo;
      if (lo == 0 && hi == last_time_) continue;  // kept wherever it is
      const KeptCounts::Best before = counts.find_best(lo);
      const bool is_better = lo > 0 && before.count > counts.get(lo);
      if (is_better) came_from[i] = before.time;
      counts.add_one(lo, hi);
      if (is_better) counts.set(lo, before.count + 1);
    }
    std::vector<Time> times(size);
    Time now = counts.find_best(last_time_ + 1).time;
    for (std::size_t i = size; i-- > 0;) {
      times[i] = std::clamp(now, earliest_[i], latest_[i]);
      const bool is_free = earliest_[i] == 0 && latest_[i] == last_time_;
      if (!is_free && now == earliest_[i]) now = came_from[i];
    }
    return times;
  }

  void sort_by_time(const std::vector<Time>& times) {
    std::vector<std::uint32_t> next(last_time_ + 2);
    for (Time time : times) ++next[time + 1];
    for (std::size_t t = 1; t < next.size(); ++t) next[t] += next[t - 1];
    std::vector<NodeId> sorted(times.size());
    for (std::size_t i = 0; i < times.size(); ++i) sorted[next[times[i]]++] = order_[first_ + i];
    std::copy(sorted.begin(), sorted.end(), order_.begin() + first_);
    for (std::uint32_t i = first_; i < end_; ++i) position_[order_[i]] = i;
  }

  const NodeLists& inputs_;
  NodeLists effects_;
  std::vector<NodeId> order_;
  IdVector<NodeId, std::uint32_t> position_;
  SideTable<NodeId, Slot> slots_;
  std::uint32_t region_ = 0;           // at work
  std::uint32_t first_ = 0, end_ = 0;  // its range of places
  Time last_time_ = 0;
  std::vector<Time> earliest_, latest_;
};

}  // namespace

std::optional<std::vector<NodeId>> order_with_fewest_moves(const Body& body, const NodeLists& inputs,
                                                           std::span<const OrderEdge> edges,
                                                           std::span<const RegionSchedule> schedules) {
  FewestMoves moves(body, inputs, edges);
  for (const RegionSchedule& schedule : schedules)
    if (!moves.apply(schedule)) return std::nullopt;
  return moves.take_order();
}

namespace {

// A chain of nodes whose positions ascend.
struct AscendingChain {
  std::uint32_t position;  // of its last node
  std::uint32_t last;      // that node's place in the new order
};

// The first of the chains, which ascend, whose position is not before this one. Nodes do not move
// far: it is searched from the end in steps that double.
std::vector<AscendingChain>::iterator find_first_behind(std::vector<AscendingChain>& chains,
                                                        std::uint32_t position) {
  const auto is_before = [](const AscendingChain& chain, std::uint32_t p) { return chain.position < p; };
  auto end = chains.end();
  for (std::ptrdiff_t step = 1; end - chains.begin() > step; step *= 2) {
    if (is_before(*(end - step), position)) return std::lower_bound(end - step, end, position, is_before);
    end -= step;
  }
  return std::lower_bound(chains.begin(), end, position, is_before);
}

}  // namespace

std::vector<NodeId> find_moved(const Body& before, const std::vector<NodeId>& order) {
  constexpr std::uint32_t kNone = ~0U;
  const auto positions = find_positions(before, before.order);
  std::vector<AscendingChain> best;  // best[l]: of the chains of l + 1 nodes the one that ends first
  std::vector<std::uint32_t> previous(order.size(), kNone);
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    const AscendingChain chain{positions[order[i]], i};
    const auto at = find_first_behind(best, chain.position);
    if (at != best.begin()) previous[i] = (at - 1)->last;
    at == best.end() ? best.push_back(chain) : static_cast<void>(*at = chain);
  }
  IdSet<NodeId> is_moved(before.nodes.size());
  for (NodeId id : order) is_moved.insert(id);
  for (std::uint32_t i = best.empty() ? kNone : best.back().last; i != kNone; i = previous[i])
    is_moved.erase(order[i]);
  std::vector<NodeId> moved;
  for (std::uint32_t row = 0; row < before.nodes.size(); ++row)
    if (is_moved.contains(NodeId(row))) moved.push_back(NodeId(row));
  return moved;
}

MoveCount count_moves(const Body& body, const std::vector<NodeId>& after, const std::vector<NodeId>& moved) {
  IdSet<NodeId> is_moved(body.nodes.size());
  for (NodeId id : moved) is_moved.insert(id);
  IdVector<NodeId, std::uint32_t> staying_before(body.nodes.size());
  std::uint32_t staying = 0;
  for (NodeId id : body.order) {
    staying_before[id] = staying;
    if (!is_moved.contains(id)) ++staying;
  }
  MoveCount count{.moved = moved.size()};
  staying = 0;
  for (NodeId id : after) {
    if (!is_moved.contains(id)) {
      ++staying;
      continue;
    }
    const std::uint32_t passed =
        std::max(staying, staying_before[id]) - std::min(staying, staying_before[id]);
    count.passed += passed;
    count.farthest = std::max(count.farthest, passed);
  }
  return count;
}

}  // namespace epweave
