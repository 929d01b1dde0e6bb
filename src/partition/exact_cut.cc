#include "partition/exact_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/layers.h"
#include "base/memory_text.h"
#include "ops/op.h"

namespace epweave {
namespace {

constexpr double kScale = 64;                             // capacities per byte, so that seconds break ties
constexpr double kLeast = 1e3;                            // bytes a second is worth where only bytes count
constexpr double kMost = 1e15;                            // where only seconds count
constexpr double kRounding = 1e-6, kLeastSeconds = 1e-9;  // of sums in another order

bool is_heavy(const Node& node) {
  return node.op != nullptr &&
         (node.op->cost == CostClass::kMatmul || node.op->cost == CostClass::kAttention);
}

constexpr int kFurther = 3;         // smaller cuts that are mixed in, too
constexpr double kTightGap = 0.01;  // a choice that is so little above its bound is as good as any
constexpr double kWideGap = 0.05;   // above the bound for the budget: others are looked for

// A bound on a cut that computes `seconds` again lies above them by rounding alone.
double clip_bound(double bound, double seconds) {
  EPWEAVE_CHECK(bound <= seconds * (1 + kRounding) + kLeastSeconds);
  return std::min(bound, seconds);
}

}  // namespace

ExactCuts::ExactCuts(const Graph& graph, const Joint& joint, const ValueCosts& costs,
                     const ExactOptions& options)
    : graph_(graph),
      joint_(joint),
      costs_(costs),
      options_(options),
      network_(3 * graph.step().nodes.size() + 2),
      is_fixed_(graph.step().nodes.size()),
      is_kept_(graph.step().nodes.size()),
      is_handed_(graph.step().nodes.size()) {
  if (options_.keeps_layers) find_handed();
  build();
}

void ExactCuts::find_handed() {
  Layers layers(graph_);
  for (NodeId id : graph_.step().order) {
    if (graph_.step().nodes[id].kind != NodeKind::kCall || !joint_.forward(id)) continue;
    const std::int64_t layer = layers.of(graph_.step().nodes[id]);
    const bool is_handed = std::ranges::any_of(joint_.users[id], [&](NodeId user) {
      return joint_.forward(user) && layers.of(graph_.step().nodes[user]) > layer;
    });
    // A view is saved as what it shows: whose storage is there, is not computed again, either.
    if (is_handed) is_handed_[id.index()] = is_handed_[costs_.base[id.index()].index()] = 1;
  }
}

bool ExactCuts::can_do_again(NodeId id) const {
  const Node& node = graph_.step().nodes[id];
  if (!can_run_twice(graph_, node)) return false;
  // What stands in backward, and forward need not have, is done once, there.
  if (costs_.in_unshard[id.index()] == 0 && node.is_backward() && !joint_.forward(id)) return true;
  if (costs_.in_unshard[id.index()] == 0 && can_save(graph_, node)) {
    if (options_.keeps_head && is_behind_layers(graph_.text(node.module))) return false;
    if (options_.keeps_layers && is_handed_[id.index()] != 0) return false;
  }
  if (is_looked_up(*graph_.context, node)) return true;
  if (costs_.in_unshard[id.index()] != 0) return options_.regather == Regather::kAlways;
  if (is_launch(node) || is_wait(node)) return false;
  return !(options_.keeps_heavy && is_heavy(node));
}

bool ExactCuts::can_keep(NodeId id) const {
  const std::size_t at = id.index();
  // Whatever it is, backward gets an input of the step as it is: gradients of DTensors come with
  // their meshes.
  if (graph_.step().nodes[id].kind == NodeKind::kPlaceholder) return true;
  if (!can_save(graph_, graph_.step().nodes[id])) return false;
  if (costs_.in_unshard[at] != 0)
    return options_.regather == Regather::kNever && costs_.is_gathered[at] != 0 && costs_.base[at] == id;
  return costs_.base[at] == id && !is_launch(graph_.step().nodes[id]);
}

// Of values that may not run twice each storage is priced once, however many show it. Where its
// base may run twice it has a price of its own, too: bounds leave such bytes out (`priced_twice_`).
void ExactCuts::price_saving(NodeId id, bool is_fixed, IdSet<NodeId>& is_priced) {
  const Node& node = graph_.step().nodes[id];
  const bool is_kept = can_keep(id) || (is_fixed && can_save(graph_, node));
  const bool is_free = node.kind == NodeKind::kPlaceholder || costs_.is_state[id.index()] != 0;
  const NodeId base = costs_.base[id.index()];
  const auto after_sink = static_cast<FlowNetwork::Vertex>(2 * graph_.step().nodes.size() + 2);
  const FlowNetwork::Vertex in = 2 * id.index(), out = in + 1, storage = after_sink + base.index();
  is_kept_[id.index()] = is_kept;
  is_fixed_[id.index()] = is_fixed;
  const std::int64_t bytes = is_free ? 0 : static_cast<std::int64_t>(kScale) * costs_.bytes[base.index()];
  if (is_fixed && is_kept) {
    if (is_priced.insert(base)) {
      network_.add_edge(after_sink - 2, storage, bytes);
      if (base != id && is_fixed_[base.index()] == 0) priced_twice_ += bytes;
    }
    network_.add_edge(storage, out, FlowNetwork::kInfinite);
  } else {
    network_.add_edge(in, out, is_kept ? bytes : FlowNetwork::kInfinite);
  }
}

// A call is not done again on storage that is written, or to make what forward writes: it would
// find, or leave, another state; nor on storage that forward frees. What backward alone writes it
// makes itself.
void ExactCuts::build() {
  const Body& body = graph_.step();
  const Effects effects(graph_, body);
  const IdSet<NodeId> written_in_forward = find_written_in_forward(effects, joint_);
  const IdSet<NodeId> of_freed = find_uses_of_freed(effects, joint_);
  IdSet<NodeId> written(body.nodes.size()), is_priced(body.nodes.size());
  for (NodeId id : body.order)
    for (const StorageAccess& access : effects.accesses_of(id))
      if (access.writes && !is_wait(body.nodes[id])) written.insert(access.storage);
  const auto source = static_cast<FlowNetwork::Vertex>(2 * body.nodes.size()), sink = source + 1;
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    if (node.kind == NodeKind::kOutput) continue;
    const FlowNetwork::Vertex in = 2 * id.index(), out = in + 1;
    if (joint_.backward(id)) {
      network_.add_edge(in, sink, FlowNetwork::kInfinite);
      continue;
    }
    const bool touches_written =
        written_in_forward.contains(effects.storage_of(id)) ||
        std::ranges::any_of(effects.accesses_of(id),
                            [&](const StorageAccess& access) { return written.contains(access.storage); });
    const bool is_fixed =
        node.kind == NodeKind::kPlaceholder || touches_written || of_freed.contains(id) || !can_do_again(id);
    const FlowNetwork::Edge edge = network_.add_edge(source, in, is_fixed ? FlowNetwork::kInfinite : 0);
    if (!is_fixed) priced_.emplace_back(id, edge);
    price_saving(id, is_fixed, is_priced);
    for (NodeId user : joint_.users[id]) {
      if (body.nodes[user].kind == NodeKind::kOutput || joint_.seed(user)) continue;
      network_.add_edge(out, 2 * user.index(), FlowNetwork::kInfinite);
    }
  }
  for (std::uint32_t position : joint_.backward_outputs)
    if (const NodeId id = joint_.outputs[position]; id && !joint_.backward(id))
      network_.add_edge(2 * id.index() + 1, sink, FlowNetwork::kInfinite);
}

// Saves all that can be saved: what is left over is why there is no cut.
void ExactCuts::refuse() const {
  Cut cut;
  NodeId problem;
  const auto choose = [&](NodeId id) {
    return ValueChoice{.can_save = is_kept_[id.index()] != 0, .can_recompute = is_fixed_[id.index()] == 0};
  };
  EPWEAVE_CHECK(!try_cut(graph_, joint_, choose, cut, problem));
  throw PassError("partition.cut", "backward needs it; it can neither be saved, nor computed again",
                  site_of(graph_, graph_.step().nodes[problem]), std::string(name_remedy(problem)));
}

std::string_view ExactCuts::name_remedy(NodeId problem) const {
  const Node& node = graph_.step().nodes[problem];
  if (options_.keeps_heavy && is_heavy(node)) return "give a budget, so that products may be computed again";
  return can_run_twice(graph_, node)
             ? "tag it MUST_RECOMPUTE, and cut the step by its tags: partition --policy tags"
             : "make a tensor or a number of what backward needs of it, which can be saved";
}

// What the cut is worth, by the network's capacities.
std::int64_t ExactCuts::solve(double lambda) {
  for (const auto& [id, edge] : priced_)
    network_.set_capacity(
        edge,
        static_cast<std::int64_t>(std::floor(std::min(lambda * costs_.seconds[id.index()] * kScale, 1e17))));
  const auto source = static_cast<FlowNetwork::Vertex>(2 * graph_.step().nodes.size());
  return network_.cut(source, source + 1);
}

bool ExactCuts::has_cut() {
  return smallest_.has_value() || solve(kLeast) < FlowNetwork::kInfinite;
}

BudgetCut ExactCuts::cut_at(double lambda) {
  const std::int64_t value = solve(lambda);
  if (value >= FlowNetwork::kInfinite) refuse();
  values_.emplace_back(lambda, static_cast<double>(value - priced_twice_) / kScale);
  BudgetCut result;
  result.cut = make_cut(graph_, joint_, [&](NodeId id) {
    return ValueChoice{.is_recomputed = network_.is_on_sink_side(2 * id.index()),
                       .can_save = can_save(graph_, graph_.step().nodes[id])};
  });
  result.totals = add_up(graph_, result.cut, costs_);
  return result;
}

const BudgetCut& ExactCuts::smallest() {
  if (!smallest_) smallest_ = cut_at(kLeast);
  return *smallest_;
}
const BudgetCut& ExactCuts::fastest() {
  if (!fastest_) fastest_ = cut_at(kMost);
  return *fastest_;
}

double ExactCuts::find_bound(std::int64_t bytes) const {
  double bound = 0;
  for (const auto& [lambda, value] : values_)
    bound = std::max(bound, (value - static_cast<double>(bytes)) / lambda);
  return bound;
}

// Cuts found so far, by bytes. Between two of them a line is an edge of the envelope, or the cut at
// its slope lies below.
std::pair<BudgetCut, BudgetCut> ExactCuts::bracket(std::int64_t bytes, double seconds) {
  if (corners_.empty()) corners_ = {{smallest()}, {fastest()}};
  const bool is_by_bytes = seconds < 0;
  const auto is_small = [&](const CutTotals& totals) {
    return is_by_bytes ? totals.bytes <= bytes : totals.seconds > seconds;
  };
  std::size_t at = 0;
  while (at + 2 < corners_.size() && is_small(corners_[at + 1].cut.totals)) ++at;
  while (!corners_[at].is_edge) {
    const CutTotals &small = corners_[at].cut.totals, &fast = corners_[at + 1].cut.totals;
    const double saved = static_cast<double>(fast.bytes - small.bytes), spent = small.seconds - fast.seconds;
    corners_[at].is_edge = true;
    if (saved <= 0 || spent <= 0) break;
    const double lambda = saved / spent;
    BudgetCut middle = cut_at(lambda);
    const CutTotals& totals = middle.totals;
    const double worth = static_cast<double>(totals.bytes) + lambda * totals.seconds;
    const double line = static_cast<double>(fast.bytes) + lambda * fast.seconds;
    if (worth >= line * (1 - kRounding) - 1 || totals.bytes <= small.bytes || totals.bytes >= fast.bytes)
      break;
    corners_[at].is_edge = false;
    corners_.insert(corners_.begin() + static_cast<std::ptrdiff_t>(at) + 1, {std::move(middle)});
    if (is_small(corners_[at + 1].cut.totals)) ++at;
  }
  return {corners_[at + 1].cut, corners_[at].cut};
}

std::optional<BudgetCut> ExactCuts::combine(const BudgetCut& fast, const BudgetCut& small,
                                            const std::vector<std::uint8_t>& takes_small) {
  BudgetCut mixed;
  NodeId problem;
  const bool is_cut = try_cut(
      graph_, joint_,
      [&](NodeId id) {
        const Node& node = graph_.step().nodes[id];
        const bool again = takes_small[id.index()] != 0 ? small.cut.recomputes(id) : fast.cut.recomputes(id);
        return ValueChoice{.is_recomputed = again || (!can_keep(id) && can_do_again(id)),
                           .can_save = can_save(graph_, node),
                           .can_recompute = can_do_again(id)};
      },
      mixed.cut, problem);
  if (!is_cut) return std::nullopt;
  mixed.totals = add_up(graph_, mixed.cut, costs_);
  return mixed;
}

// What differs, by layers.
std::vector<std::vector<NodeId>> ExactCuts::list_steps(const BudgetCut& fast, const BudgetCut& small) const {
  Layers layers(graph_);
  std::map<std::int64_t, std::vector<NodeId>> differing;
  for (NodeId id : graph_.step().order)
    if (fast.cut.recomputes(id) != small.cut.recomputes(id))
      differing[layers.of(graph_.step().nodes[id])].push_back(id);
  std::vector<std::pair<double, std::vector<NodeId>>> priced;
  for (auto& [layer, nodes] : differing) {
    double seconds = 0;
    for (NodeId id : nodes) seconds += small.cut.recomputes(id) ? costs_.seconds[id.index()] : 0;
    priced.emplace_back(std::round(seconds / kLeastSeconds), std::move(nodes));
  }
  std::ranges::stable_sort(priced, {}, [](const auto& step) { return step.first; });
  std::vector<std::vector<NodeId>> steps;
  for (auto& [seconds, nodes] : priced) steps.push_back(std::move(nodes));
  return steps;
}

// Layers take what the smaller cut does, as long as that is needed: those that cost least first, so
// that a single large value is not taken before equal layers; of equal ones the first.
BudgetCut ExactCuts::mix(const BudgetCut& fast, const BudgetCut& small, std::int64_t bytes, double seconds) {
  std::vector<std::vector<NodeId>> steps = list_steps(fast, small);
  const bool is_by_bytes = seconds < 0;
  const auto fits = [&](const CutTotals& totals) {
    return is_by_bytes ? totals.bytes <= bytes : totals.seconds <= seconds;
  };
  std::vector<std::uint8_t> takes_small(graph_.step().nodes.size());
  std::optional<BudgetCut> best;
  const auto consider = [&](std::optional<BudgetCut> mixed) {
    if (!mixed || !fits(mixed->totals)) return;
    const bool is_better = !best || (is_by_bytes ? std::pair(mixed->totals.seconds, mixed->totals.bytes) <
                                                       std::pair(best->totals.seconds, best->totals.bytes)
                                                 : std::pair(mixed->totals.bytes, mixed->totals.seconds) <
                                                       std::pair(best->totals.bytes, best->totals.seconds));
    if (is_better) best = std::move(mixed);
  };
  consider(fast);
  consider(small);
  // The first count of layers that fits, by halving; then single values of the last of them.
  std::size_t low = 0, high = steps.size();
  const auto with_layers = [&](std::size_t count) {
    std::ranges::fill(takes_small, std::uint8_t{0});
    for (std::size_t i = 0; i < count; ++i)
      for (NodeId id : steps[i]) takes_small[id.index()] = 1;
    return combine(fast, small, takes_small);
  };
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    std::optional<BudgetCut> mixed = with_layers(middle);
    const bool is_enough =
        mixed && (is_by_bytes ? mixed->totals.bytes <= bytes : mixed->totals.seconds > seconds);
    consider(std::move(mixed));
    (is_enough ? high : low) = is_enough ? middle : middle + 1;
  }
  if (low == 0 || low > steps.size()) return best ? std::move(*best) : small;
  for (bool from_front : {true, false}) {
    with_layers(low - 1);
    std::vector<NodeId> last = steps[low - 1];
    if (!from_front) std::ranges::reverse(last);
    std::size_t first = 0, end = last.size();
    while (first < end) {
      const std::size_t middle = (first + end) / 2;
      for (std::size_t i = 0; i < last.size(); ++i) takes_small[last[i].index()] = i < middle ? 1 : 0;
      std::optional<BudgetCut> mixed = combine(fast, small, takes_small);
      const bool is_enough =
          mixed && (is_by_bytes ? mixed->totals.bytes <= bytes : mixed->totals.seconds > seconds);
      consider(std::move(mixed));
      (is_enough ? end : first) = is_enough ? middle : middle + 1;
    }
  }
  return best ? std::move(*best) : small;
}

BudgetCut ExactCuts::cut_at_price(double lambda) {
  BudgetCut result = cut_at(lambda);
  result.bound_seconds = clip_bound(find_bound(result.totals.bytes), result.totals.seconds);
  return result;
}

// The same from the larger cut to the next but one, and further, where what was found is far above
// the bound. What is taken instead is as near to its own bound, or nearer.
BudgetCut ExactCuts::mix_further(std::int64_t bytes, BudgetCut found) {
  const auto gap_of = [&](const CutTotals& totals) {
    return totals.seconds / std::max(find_bound(totals.bytes), kLeastSeconds) - 1;
  };
  auto [fast, small] = bracket(bytes, -1);
  for (int i = 0; i < kFurther; ++i) {
    if (found.totals.seconds <= find_bound(bytes) * (1 + kWideGap)) break;
    if (small.totals.bytes <= smallest().totals.bytes) break;
    small = bracket(small.totals.bytes - 1, -1).second;
    BudgetCut mixed = mix(fast, small, bytes, -1);
    if (mixed.totals.seconds < found.totals.seconds &&
        gap_of(mixed.totals) <= std::max(gap_of(found.totals), kTightGap))
      found = std::move(mixed);
  }
  return found;
}

BudgetCut ExactCuts::cut_within(std::int64_t bytes) {
  if (smallest().totals.bytes > bytes)
    throw PassError(
        "partition.budget",
        fmt::format("the budget is {}; backward needs {} at least", memory_text(bytes),
                    memory_text(smallest().totals.bytes)),
        {},
        fmt::format("give a larger budget: {:.2f}MiB",
                    std::ceil(static_cast<double>(smallest().totals.bytes) / (1 << 20) * 100) / 100));
  BudgetCut result;
  if (fastest().totals.bytes <= bytes) {
    result = fastest();
  } else {
    const auto [fast, small] = bracket(bytes, -1);
    result = mix_further(bytes, mix(fast, small, bytes, -1));
  }
  result.bound_seconds = clip_bound(find_bound(result.totals.bytes), result.totals.seconds);
  return result;
}

BudgetCut ExactCuts::cut_within_seconds(double seconds) {
  BudgetCut result;
  if (smallest().totals.seconds <= seconds) {
    result = smallest();
  } else {
    const auto [fast, small] = bracket(0, std::max(seconds, 0.0));
    result = mix(fast, small, 0, std::max(seconds, 0.0));
  }
  result.bound_seconds = clip_bound(find_bound(result.totals.bytes), result.totals.seconds);
  return result;
}

}  // namespace epweave
