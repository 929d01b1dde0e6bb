#include "passes/bucket/independence.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace epweave {
namespace {

// The length of the longest chain of the given collectives up to a node.
class ChainLengths {
 public:
  ChainLengths(const MergedGraph& graph, NodeOrder& order, const std::vector<std::vector<NodeId>>& planned,
               const SideTable<NodeId, std::uint32_t>& planned_with,
               std::span<const Mergeable* const> collectives)
      : graph_(graph), order_(order), planned_(planned), planned_with_(planned_with) {
    for (const Mergeable* m : collectives) {
      waits_.insert(m->wait);
      first_ = first_ && order_.precedes(first_, m->wait) ? first_ : m->wait;
    }
    // What merges are planned may tie a launch in front of the first wait to one behind it.
    for (const std::vector<NodeId>& launches : planned_)
      for (NodeId id : launches)
        if (order_.precedes(id, first_)) first_ = id;
  }

  std::uint32_t find(NodeId id) {
    std::vector<NodeId> stack{id};
    while (!stack.empty()) {
      const NodeId top = stack.back();
      if (!known_.contains(top) && push_missing(top, stack)) continue;
      stack.pop_back();
      if (!known_.contains(top)) known_.emplace(top, longest_of(top));
    }
    return known_.at(id);
  }

 private:
  template <class Visit>
  void visit_needs(NodeId id, const Visit& visit) const {
    const auto each = [&](NodeId from) {
      graph_.visit_inputs(from, [&](NodeId input) {
        if (!order_.precedes(input, first_)) visit(input);
        return true;
      });
    };
    if (const std::uint32_t with = planned_with_[id]) {
      for (NodeId other : planned_[with - 1]) each(other);
    } else {
      each(id);
    }
  }

  bool push_missing(NodeId id, std::vector<NodeId>& stack) const {
    const std::size_t size = stack.size();
    visit_needs(id, [&](NodeId need) {
      if (!known_.contains(need)) stack.push_back(need);
    });
    return stack.size() > size;
  }

  std::uint32_t longest_of(NodeId id) const {
    std::uint32_t longest = 0;
    visit_needs(id, [&](NodeId need) { longest = std::max(longest, known_.at(need)); });
    return waits_.contains(id) ? longest + 1 : longest;
  }

  const MergedGraph& graph_;
  NodeOrder& order_;
  const std::vector<std::vector<NodeId>>& planned_;
  const SideTable<NodeId, std::uint32_t>& planned_with_;
  std::unordered_set<NodeId> waits_;
  NodeId first_;  // no chain begins before it
  std::unordered_map<NodeId, std::uint32_t> known_;
};

}  // namespace

std::vector<std::vector<const Mergeable*>> Independence::split(
    std::span<const Mergeable* const> collectives) {
  if (collectives.size() < 2) return {{collectives.begin(), collectives.end()}};
  ChainLengths lengths(graph_, graph_.order(), planned_, planned_with_, collectives);
  std::vector<std::vector<const Mergeable*>> groups;
  for (const Mergeable* m : collectives) {
    const std::uint32_t length = lengths.find(m->launch);
    if (groups.size() <= length) groups.resize(length + 1);
    groups[length].push_back(m);
  }
  std::erase_if(groups, [](const auto& group) { return group.empty(); });
  return groups;
}

void Independence::plan_merge(std::span<const Mergeable* const> collectives) {
  std::vector<NodeId>& launches = planned_.emplace_back();
  for (const Mergeable* m : collectives) {
    launches.push_back(m->launch);
    planned_with_.at(m->launch) = static_cast<std::uint32_t>(planned_.size());
  }
}

void Independence::forget_plans() {
  for (const std::vector<NodeId>& launches : planned_)
    for (NodeId id : launches) planned_with_.at(id) = 0;
  planned_.clear();
}

}  // namespace epweave
