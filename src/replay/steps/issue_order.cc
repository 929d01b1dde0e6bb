#include "replay/steps/issue_order.h"

#include <iterator>
#include <set>
#include <utility>

#include "analysis/host_copy.h"
#include "analysis/order.h"
#include "base/error.h"
#include "replay/values/random_numbers.h"

namespace epweave::replay {
namespace {

class Shuffler {
 public:
  Shuffler(const Graph& graph, const Body& body, std::uint64_t seed)
      : context_(*graph.context),
        body_(body),
        facts_(find_order_facts(graph, body)),
        numbers_(seed, "issue order"),
        position_(body.nodes.size(), 0),
        missing_(body.nodes.size(), 0),
        users_(body.nodes.size()) {
    for (std::size_t i = 0; i < body.order.size(); ++i) position_[body.order[i]] = i;
    for (NodeId id : body.order)
      for (NodeId input : facts_.inputs[id]) require(input, id);
    for (const OrderEdge& edge : facts_.effects.order_edges())
      if (edge.before != edge.after) require(edge.before, edge.after);
    keep_launches();
    keep_host_reads();
    keep_ends();
  }

  std::vector<NodeId> shuffle() {
    for (NodeId id : body_.order)
      if (missing_[id] == 0) ready_.insert(position_[id]);
    std::vector<NodeId> order;
    std::vector<bool> is_placed(body_.order.size());
    std::size_t first_left = 0;
    for (std::uint64_t draw = 0; !ready_.empty(); ++draw) {
      const std::size_t at = pick(first_left + kReach, draw);
      const NodeId id = body_.order[at];
      order.push_back(id);
      is_placed[at] = true;
      while (first_left < is_placed.size() && is_placed[first_left]) ++first_left;
      for (NodeId user : users_[id])
        if (--missing_[user] == 0) ready_.insert(position_[user]);
    }
    EPWEAVE_CHECK(order.size() == body_.order.size());
    return order;
  }

 private:
  static constexpr std::size_t kChoices = 16;

  void require(NodeId before, NodeId after) {
    users_[before].push_back(after);
    ++missing_[after];
  }

  void keep_launches() {
    std::vector<std::pair<Arg, NodeId>> last;  // of each group; there are few
    for (const Launch& launch : facts_.launches) {
      bool is_known = false;
      for (auto& [group, before] : last) {
        if (group != launch.group) continue;
        require(std::exchange(before, launch.node), launch.node);
        is_known = true;
      }
      if (!is_known) last.emplace_back(launch.group, launch.node);
    }
  }

  // Copies to the host and what makes it wait keep their order, and what reads on the host stays
  // behind them.
  void keep_host_reads() {
    IdSet<NodeId> events;
    for (NodeId id : facts_.host_events) events.insert(id);
    NodeId last;
    for (NodeId id : body_.order) {
      bool reads_host = false;
      for (NodeId input : facts_.inputs[id]) reads_host |= is_on_host(context_, body_.nodes[input]);
      if (last && (events.contains(id) || reads_host)) require(last, id);
      if (events.contains(id)) last = id;
    }
  }

  void keep_ends() {
    NodeId last_input;
    for (NodeId id : body_.order) {
      const Node& node = body_.nodes[id];
      if (last_input) require(last_input, id);
      if (node.kind == NodeKind::kPlaceholder) last_input = id;
      if (node.kind == NodeKind::kOutput)
        for (NodeId before : body_.order)
          if (before != id) require(before, id);
    }
  }

  // The position of one of the first ready nodes.
  std::size_t pick(std::size_t end, std::uint64_t draw) {
    std::size_t count = 0;
    for (auto at = ready_.begin(); at != ready_.end() && *at < end && count < kChoices; ++at) ++count;
    const auto chosen =
        std::next(ready_.begin(), static_cast<std::ptrdiff_t>(count == 0 ? 0 : numbers_.bits(draw) % count));
    const std::size_t position = *chosen;
    ready_.erase(chosen);
    return position;
  }

  const Context& context_;
  const Body& body_;
  const OrderFacts facts_;
  const RandomNumbers numbers_;
  IdVector<NodeId, std::size_t> position_;
  IdVector<NodeId, std::uint32_t> missing_;  // how many nodes must come first
  IdVector<NodeId, std::vector<NodeId>> users_;
  std::set<std::size_t> ready_;
};

}  // namespace

std::vector<NodeId> shuffle_order(const Graph& graph, const Body& body, std::uint64_t seed) {
  return Shuffler(graph, body, seed).shuffle();
}

}  // namespace epweave::replay
