#include "passes/bucket/prefetch.h"

#include <algorithm>
#include <array>
#include <map>

#include "ops/op.h"
#include "passes/bucket/node_order.h"

namespace epweave {
namespace {

// `launch` is to come before `place`.
struct Request {
  NodeId place;
  std::vector<NodeId> launches;
};

class Requests {
 public:
  Requests(const Graph& graph, std::span<const MergedLaunch> launches, const IdSet<NodeId>& scoped)
      : body_(graph.step()), scoped_(scoped) {
    for (const MergedLaunch& launch : launches) {
      by_launch_.emplace(launch.launch, &launch);
      by_wait_.emplace(launch.wait, &launch);
    }
  }

  // Waits for reductions, each behind the launches up to the next wait.
  std::vector<Request> delay_reductions() const {
    std::vector<Request> requests;
    std::vector<NodeId> delayed, started;
    for (NodeId id : body_.order) {
      if (const MergedLaunch* launch = find(by_launch_, id, MergeKind::kReduceScatter))
        started.push_back(launch->launch);
      const MergedLaunch* wait = find(by_wait_, id, MergeKind::kReduceScatter);
      if (wait == nullptr) continue;
      if (!started.empty()) {
        for (NodeId before : delayed) requests.push_back({before, started});
        delayed.clear();
        started.clear();
      }
      delayed.push_back(wait->wait);
    }
    return requests;
  }

  // Gathers, each in front of the last wait before it for a gather of its direction. Back to front.
  std::vector<Request> hoist_gathers() const {
    std::vector<Request> requests;
    std::array<std::vector<NodeId>, 2> open;
    std::array<NodeId, 2> first_product;
    for (auto at = body_.order.rbegin(); at != body_.order.rend(); ++at) {
      const NodeId id = *at;
      const bool backward = body_.nodes[id].is_backward();
      if (find(by_launch_, id, MergeKind::kAllGather) != nullptr) {
        open[backward].push_back(id);
      } else if (find(by_wait_, id, MergeKind::kAllGather) != nullptr && !open[backward].empty()) {
        requests.push_back({id, std::move(open[backward])});
        open[backward].clear();
      }
      if (scoped_.contains(id) && is_product(body_.nodes[id])) first_product[backward] = id;
    }
    for (const std::size_t direction : {std::size_t{1}, std::size_t{0}})
      if (!open[direction].empty() && first_product[direction])
        requests.push_back({first_product[direction], open[direction]});
    return requests;
  }

 private:
  static bool is_product(const Node& node) {
    return node.op != nullptr &&
           (node.op->cost == CostClass::kMatmul || node.op->cost == CostClass::kAttention);
  }

  static const MergedLaunch* find(const std::map<NodeId, const MergedLaunch*>& by, NodeId id,
                                  MergeKind kind) {
    const auto found = by.find(id);
    return found != by.end() && found->second->kind == kind ? found->second : nullptr;
  }

  const Body& body_;
  const IdSet<NodeId>& scoped_;
  std::map<NodeId, const MergedLaunch*> by_launch_, by_wait_;
};

class Mover {
 public:
  Mover(const Body& body, const NodeLists& inputs, const NodeLists& users)
      : body_(body), inputs_(inputs), users_(users), order_(body.order) {}

  void delay(std::span<const Request> requests) {
    // By where the launches stand at first.
    const auto at = find_positions(body_, body_.order);
    for (const Request& request : requests) {
      const NodeId last = *std::ranges::max_element(request.launches, {}, [&](NodeId id) { return at[id]; });
      const std::vector<NodeId> moved = list_fed_only_by(request.place);
      const NodeId place = find_staying(last, moved);
      move(moved, [&] { order_.insert_after(place, moved); });
    }
  }

  void hoist(std::span<const Request> requests) {
    const std::vector<NodeId> before = order_.list();
    const auto at = find_positions(body_, before);
    for (const Request& request : requests) {
      std::vector<NodeId> launches = request.launches;
      std::ranges::sort(launches, {}, [&](NodeId id) { return at[id]; });
      for (NodeId launch : launches) {
        if (at[launch] < at[request.place]) continue;
        const std::vector<NodeId> moved = list_needs(launch, at, at[request.place]);
        if (std::ranges::find(moved, request.place) != moved.end()) continue;  // it needs what is waited for
        move(moved, [&] { order_.insert_before(request.place, moved); });
      }
    }
  }

  PrefetchOrder take() { return {order_.list(), std::move(moved_)}; }

 private:
  // A node, or the closest in front of it that is not moved: a launch that needs nothing but what
  // is waited for moves with it. Inputs of the step never do.
  NodeId find_staying(NodeId id, const std::vector<NodeId>& moved) const {
    while (std::ranges::find(moved, id) != moved.end()) id = order_.previous(id);
    return id;
  }

  template <class Insert>
  void move(const std::vector<NodeId>& ids, const Insert& insert) {
    for (NodeId id : ids) {
      order_.remove(id);
      moved_.push_back(id);
    }
    insert();
  }

  // The node, and those that take nothing but what it and these give.
  std::vector<NodeId> list_fed_only_by(NodeId id) const {
    std::vector<NodeId> found{id};
    const auto is_found = [&](NodeId other) { return std::ranges::find(found, other) != found.end(); };
    for (std::size_t i = 0; i < found.size(); ++i)
      for (NodeId user : users_[found[i]])
        if (body_.nodes[user].kind != NodeKind::kOutput && !is_found(user) &&
            std::ranges::all_of(inputs_[user], is_found))
          found.push_back(user);
    return found;
  }

  // The node, and what it needs from there on, in order.
  std::vector<NodeId> list_needs(NodeId id, const IdVector<NodeId, std::uint32_t>& at,
                                 std::uint32_t from) const {
    std::vector<NodeId> found, pending{id};
    while (!pending.empty()) {
      const NodeId next = pending.back();
      pending.pop_back();
      const bool is_behind = body_.nodes[next].kind != NodeKind::kPlaceholder && at[next] >= from;
      if (!is_behind || std::ranges::find(found, next) != found.end()) continue;
      found.push_back(next);
      pending.insert(pending.end(), inputs_[next].begin(), inputs_[next].end());
    }
    std::ranges::sort(found, {}, [&](NodeId node) { return at[node]; });
    return found;
  }

  const Body& body_;
  const NodeLists& inputs_;
  const NodeLists& users_;
  NodeOrder order_;
  std::vector<NodeId> moved_;
};

}  // namespace

PrefetchOrder find_prefetch_order(const Graph& graph, std::span<const MergedLaunch> launches,
                                  const IdSet<NodeId>& scoped, const NodeLists& inputs,
                                  const NodeLists& users) {
  const Requests requests(graph, launches, scoped);
  Mover mover(graph.step(), inputs, users);
  mover.delay(requests.delay_reductions());
  mover.hoist(requests.hoist_gathers());
  return mover.take();
}

}  // namespace epweave
