#include "analysis/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "analysis/collectives.h"
#include "analysis/host_copy.h"
#include "ops/op.h"

namespace epweave {
namespace {

// --------------------------------------------------------------------------- proving

void check_is_permutation(const Body& before, const Body& after) {
  EPWEAVE_CHECK(before.order.size() == after.order.size());
  EPWEAVE_CHECK(before.nodes.size() == after.nodes.size());
  IdSet<NodeId> expected(before.nodes.size());
  for (NodeId id : before.order) expected.insert(id);
  for (NodeId id : after.order) {
    EPWEAVE_CHECK(expected.contains(id));
    expected.erase(id);
  }
}

using Positions = IdVector<NodeId, std::uint32_t>;

// The first pair of launches on one group that changed places, by the positions behind the pass.
std::optional<OrderEdge> find_launch_violation(const std::vector<Launch>& launches, const Positions& position,
                                               const IdSet<NodeId>& free_launches) {
  std::map<std::pair<ArgKind, std::uint64_t>, NodeId> last_on_group;
  for (const Launch& launch : launches) {
    if (free_launches.contains(launch.node)) continue;
    NodeId& last = last_on_group[{launch.group.kind(), launch.group.bits()}];
    if (last && position[launch.node] < position[last])
      return OrderEdge{last, launch.node, OrderReason::kLaunchOrder, {}};
    last = launch.node;
  }
  return std::nullopt;
}

// What decides whether the host reads a non-blocking copy too early, in execution order: the copies
// to the host, the nodes that read them, and those that make the host wait for the device.
std::vector<NodeId> list_host_reads(const OrderFacts& facts) {
  const Body& body = facts.effects.body();
  IdSet<NodeId> concerned(body.nodes.size()), copied(body.nodes.size());  // copied: storages
  for (NodeId id : facts.host_events) {
    concerned.insert(id);
    if (find_host_copy(facts.effects.context(), body, body.nodes[id]))
      copied.insert(facts.effects.storage_of(id));
  }
  const auto takes_copy = [&](NodeId id) {
    return std::ranges::any_of(
        facts.inputs[id], [&](NodeId input) { return copied.contains(facts.effects.storage_of(input)); });
  };
  std::vector<NodeId> reads;
  for (NodeId id : body.order)
    if (concerned.contains(id) || (takes_copy(id) && reads_elements(body.nodes[id]))) reads.push_back(id);
  return reads;
}

// A read of a non-blocking copy with nothing in between that makes the host wait, which `after` has
// and the body before has not.
std::optional<OrderEdge> find_host_read_violation(const OrderFacts& before, const Body& after,
                                                  const Positions& position) {
  const Effects& effects = before.effects;
  std::vector<NodeId> order = list_host_reads(before);
  IdSet<NodeId> known;
  visit_early_reads(effects, effects.body(), order, [&](NodeId, NodeId reader) { known.insert(reader); });
  std::sort(order.begin(), order.end(), [&](NodeId a, NodeId b) { return position[a] < position[b]; });
  std::optional<OrderEdge> found;
  visit_early_reads(effects, after, order, [&](NodeId copy, NodeId reader) {
    if (!found && !known.contains(reader)) found = OrderEdge{copy, reader, OrderReason::kHostRead, {}};
  });
  return found;
}

// --------------------------------------------------------------------------- sorting

// Per node: inputs, then the edges' `before`, in order.
class Dependences {
 public:
  Dependences(const Body& body, const NodeLists& inputs, std::span<const OrderEdge> edges)
      : inputs_(inputs), begins_(body.nodes.size() + 1), edges_(edges.size()) {
    for (const OrderEdge& edge : edges) ++begins_[edge.after.index() + 1];
    for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
    std::vector<std::uint32_t> next(begins_.begin(), begins_.end() - 1);
    for (const OrderEdge& edge : edges) edges_[next[edge.after.index()]++] = edge;
  }

  std::size_t count(NodeId id) const { return inputs_[id].size() + edges_of(id).size(); }
  NodeId get(NodeId id, std::size_t i) const {
    const auto inputs = inputs_[id];
    return i < inputs.size() ? inputs[i] : edges_of(id)[i - inputs.size()].before;
  }
  std::span<const OrderEdge> edges_of(NodeId id) const {
    return {edges_.data() + begins_[id.index()], begins_[id.index() + 1] - begins_[id.index()]};
  }
  std::span<const NodeId> inputs_of(NodeId id) const { return inputs_[id]; }

 private:
  const NodeLists& inputs_;
  std::vector<std::uint32_t> begins_;
  std::vector<OrderEdge> edges_;
};

class StableSorter {
 public:
  StableSorter(const Body& body, const Dependences& dependences)
      : body_(body),
        dependences_(dependences),
        left_(body.nodes.size()),
        first_waiting_(body.nodes.size()),
        last_waiting_(body.nodes.size()),
        next_waiting_(body.nodes.size()),
        placed_(body.nodes.size()) {
    result_.waited_for = IdVector<NodeId, NodeId>(body.nodes.size());
    for (NodeId id : body.order) left_[id] = static_cast<std::uint32_t>(dependences.count(id));
  }

  // Whether every node could be placed.
  bool run() {
    std::vector<NodeId> pending(body_.order.rbegin(), body_.order.rend());
    const NodeId output = find_output();
    while (!pending.empty()) {
      const NodeId id = pending.back();
      pending.pop_back();
      if (id == output) continue;
      if (NodeId missing = find_last_missing(id)) {
        wait_for(id, missing);
      } else {
        place(id, pending);
      }
    }
    if (output) result_.order.push_back(output);
    return result_.order.size() == body_.order.size();
  }

  StableOrder take() { return std::move(result_); }
  bool is_placed(NodeId id) const { return placed_.contains(id); }

 private:
  NodeId find_output() const {
    const bool has_output = !body_.order.empty() && body_.nodes[body_.order.back()].kind == NodeKind::kOutput;
    return has_output ? body_.order.back() : NodeId();
  }

  // Dependences behind the one last waited for were met when it was chosen, and stay so.
  NodeId find_last_missing(NodeId id) {
    for (std::uint32_t& left = left_[id]; left > 0; --left)
      if (const NodeId dep = dependences_.get(id, left - 1); !placed_.contains(dep)) return dep;
    return {};
  }

  void wait_for(NodeId id, NodeId missing) {
    result_.waited_for[id] = missing;
    if (NodeId last = last_waiting_[missing]) {
      next_waiting_[last] = id;
    } else {
      first_waiting_[missing] = id;
    }
    last_waiting_[missing] = id;
    next_waiting_[id] = NodeId();
  }

  void place(NodeId id, std::vector<NodeId>& pending) {
    placed_.insert(id);
    result_.order.push_back(id);
    const std::size_t from = pending.size();
    for (NodeId w = first_waiting_[id]; w; w = next_waiting_[w]) pending.push_back(w);
    std::reverse(pending.begin() + static_cast<std::ptrdiff_t>(from), pending.end());
  }

  const Body& body_;
  const Dependences& dependences_;
  StableOrder result_;
  IdVector<NodeId, std::uint32_t> left_;
  IdVector<NodeId, NodeId> first_waiting_, last_waiting_, next_waiting_;
  IdSet<NodeId> placed_;
};

// The shortest cycle among the nodes that could not be placed. A run of requested edges counts
// once: it is one request, whose steps say nothing.
//
// Breadth first from every such node to what it depends on, never further than the best cycle so
// far. Where that would take too long (kWork edges), the cycle is the shortest of those found until
// then.
class CycleFinder {
 public:
  CycleFinder(const Body& body, const Dependences& dependences, const StableSorter& sorter)
      : body_(body), dependences_(dependences), sorter_(sorter), states_(2 * body.nodes.size()) {}

  Cycle find() {
    Found best = find_through(find_start(), ~0U);
    EPWEAVE_CHECK(!best.cycle.empty());
    // The nodes of a cycle are likely to be on a shorter one, too.
    const Cycle first = best.cycle;
    for (const OrderEdge& edge : first) improve(edge.after, best);
    for (NodeId id : body_.order)
      if (is_stuck(id)) improve(id, best);
    return std::move(best.cycle);
  }

 private:
  static constexpr std::size_t kWork = 50'000'000;
  static constexpr std::uint32_t kShortest = 2;

  struct Found {
    Cycle cycle;
    std::uint32_t length = 0;
  };

  // A node reached by a requested edge or by another one: the former goes on along requests for
  // nothing.
  struct State {
    std::uint32_t search = 0;  // that the rest is of
    std::uint32_t length = 0;
    bool is_done = false;
    OrderEdge edge;                // from here to where the search came from
    bool came_by_request = false;  // the state at edge.after
  };

  bool is_stuck(NodeId id) const {
    return body_.nodes[id].kind != NodeKind::kOutput && !sorter_.is_placed(id);
  }

  // Every stuck node misses a stuck one: following those ends in a cycle.
  NodeId find_start() const {
    IdSet<NodeId> seen(body_.nodes.size());
    NodeId id;
    for (NodeId candidate : body_.order)
      if (is_stuck(candidate)) id = candidate;
    while (seen.insert(id)) {
      std::size_t i = dependences_.count(id);
      while (i > 0 && !is_stuck(dependences_.get(id, i - 1))) --i;
      EPWEAVE_CHECK(i > 0);
      id = dependences_.get(id, i - 1);
    }
    return id;
  }

  void improve(NodeId start, Found& best) {
    if (best.length <= kShortest || work_ > kWork) return;
    if (Found found = find_through(start, best.length - 1); !found.cycle.empty()) best = std::move(found);
  }

  State& state(NodeId id, bool by_request) { return states_[2 * id.index() + (by_request ? 1 : 0)]; }

  // The shortest cycle through `start` if it is no longer than `limit`.
  Found find_through(NodeId start, std::uint32_t limit) {
    ++search_;
    std::deque<std::pair<NodeId, bool>> queue{{start, false}};
    state(start, false) = {.search = search_, .length = 0};
    while (!queue.empty()) {
      const auto id = queue.front().first;
      const auto by_request = queue.front().second;  // no structured binding: clang 14 captures none
      queue.pop_front();
      State& here = state(id, by_request);
      if (std::exchange(here.is_done, true)) continue;
      if (id == start && here.length > 0) return trace(start, by_request);
      const std::uint32_t length = here.length;
      auto follow = [&](const OrderEdge& edge) {
        ++work_;
        const bool is_request = edge.reason == OrderReason::kRequested;
        const bool is_free = is_request && by_request;
        if (!is_stuck(edge.before) || length + (is_free ? 0 : 1) > limit) return;
        if (!reach(edge, by_request, length + (is_free ? 0 : 1))) return;
        is_free ? queue.emplace_front(edge.before, is_request) : queue.emplace_back(edge.before, is_request);
      };
      for (NodeId input : dependences_.inputs_of(id)) follow({input, id, OrderReason::kData, {}});
      for (const OrderEdge& edge : dependences_.edges_of(id)) follow(edge);
    }
    return {};
  }

  // Whether this is the shortest way so far. The start may be reached again: its first state has no
  // edge.
  bool reach(const OrderEdge& edge, bool came_by_request, std::uint32_t length) {
    State& there = state(edge.before, edge.reason == OrderReason::kRequested);
    if (there.search == search_ && there.edge.after && there.length <= length) return false;
    there = {.search = search_, .length = length, .edge = edge, .came_by_request = came_by_request};
    return true;
  }

  Found trace(NodeId start, bool by_request) {
    Found found{{}, state(start, by_request).length};
    NodeId id = start;
    do {
      const State& here = state(id, by_request);
      found.cycle.push_back(here.edge);
      id = here.edge.after;
      by_request = here.came_by_request;
    } while (id != start);
    return found;
  }

  const Body& body_;
  const Dependences& dependences_;
  const StableSorter& sorter_;
  std::vector<State> states_;
  std::uint32_t search_ = 0;
  std::size_t work_ = 0;
};

}  // namespace

OrderFacts find_order_facts(const Graph& graph, const Body& body, const Effects::Visit& also) {
  const Context& context = *graph.context;
  InputLister inputs(context, body);
  LaunchFinder launches(context, body, LaunchFinder::Of::kAll);
  std::vector<NodeId> host_events;
  Effects effects(graph, body, [&](NodeId id, const Node& node) {
    inputs.add(id, node);
    launches.add(id, node);
    if (host_event_of(context, body, node) != HostEvent::kNone) host_events.push_back(id);
    if (also) also(id, node);
  });
  return {std::move(effects), inputs.take(), launches.take(), std::move(host_events)};
}

std::vector<OrderEdge> list_order_edges(const OrderFacts& facts) {
  std::vector<OrderEdge> edges = facts.effects.order_edges();
  const std::vector<OrderEdge> host_reads = list_host_read_edges(facts);
  edges.insert(edges.end(), host_reads.begin(), host_reads.end());
  return edges;
}

std::vector<OrderEdge> list_host_read_edges(const OrderFacts& facts) {
  const Context& context = facts.effects.context();
  const Body& body = facts.effects.body();
  struct Copy {
    NodeId copy, wait;
  };
  std::vector<Copy> copies;
  SideTable<NodeId, std::uint32_t> copy_of(~0U);  // by storage: the last one
  std::size_t first_open = 0;                     // those from here on have no wait yet
  std::vector<OrderEdge> edges;
  for (NodeId id : list_host_reads(facts)) {
    const Node& node = body.nodes[id];
    if (reads_elements(node))
      for (NodeId input : facts.inputs[id]) {
        const std::uint32_t at = copy_of[facts.effects.storage_of(input)];
        if (at == ~0U || !copies[at].wait) continue;
        edges.push_back({copies[at].copy, copies[at].wait, OrderReason::kHostRead, {}});
        edges.push_back({copies[at].wait, id, OrderReason::kHostRead, {}});
      }
    const HostEvent event = host_event_of(context, body, node);
    if (event == HostEvent::kCopy) {
      copy_of.at(facts.effects.storage_of(id)) = static_cast<std::uint32_t>(copies.size());
      copies.push_back({id, {}});
    } else if (event == HostEvent::kWait) {
      for (; first_open < copies.size(); ++first_open) copies[first_open].wait = id;
    }
  }
  return edges;
}

std::optional<OrderEdge> find_order_violation(const OrderFacts& before, const Body& after,
                                              const IdSet<NodeId>& free_launches) {
  check_is_permutation(before.effects.body(), after);
  const auto position = find_positions(after, after.order);
  for (NodeId id : after.order)
    for (NodeId input : before.inputs[id])
      if (position[input] >= position[id]) return OrderEdge{input, id, OrderReason::kData, {}};
  for (const OrderEdge& edge : before.effects.order_edges())
    if (position[edge.before] > position[edge.after]) return edge;
  if (auto edge = find_host_read_violation(before, after, position)) return edge;
  return find_launch_violation(before.launches, position, free_launches);
}

std::variant<StableOrder, Cycle> sort_stably(const Body& body, const NodeLists& inputs,
                                             std::span<const OrderEdge> edges) {
  const Dependences dependences(body, inputs, edges);
  StableSorter sorter(body, dependences);
  if (sorter.run()) return sorter.take();
  return CycleFinder(body, dependences, sorter).find();
}

std::string print_path(const Graph& graph, const Body& body, std::span<const OrderEdge> path) {
  if (path.empty()) return {};
  auto name = [&](NodeId id) { return graph.text(body.nodes[id].name); };
  std::string text(name(path.front().before));
  for (std::size_t i = 0; i < path.size(); ++i) {
    // A run of requested edges is one request.
    const bool is_run = path[i].reason == OrderReason::kRequested && i + 1 < path.size() &&
                        path[i + 1].reason == OrderReason::kRequested;
    if (is_run) continue;
    text += fmt::format(" -> {} ({}{})", name(path[i].after), name_of(path[i].reason),
                        path[i].about ? fmt::format(" in {}", name(path[i].about)) : "");
  }
  return text;
}

}  // namespace epweave
