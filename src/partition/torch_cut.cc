// PyTorch's min-cut partitioner at an activation memory budget: fewer bans for a smaller share, at
// last those of a knapsack.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "partition/cut.h"
#include "partition/knapsack.h"
#include "partition/torch_network.h"

namespace epweave {
namespace {

class TorchCut {
 public:
  TorchCut(const Graph& graph, const Joint& joint)
      : graph_(graph), context_(*graph.context), body_(graph.step()), joint_(joint), facts_(graph, joint) {}

  Cut run(double share) {
    if (share <= 0) return save_least();
    if (share >= 1) return solved(TorchBans::kAll).cut;
    return choose_within(share);
  }

 private:
  // With fewer and fewer bans, until what is saved beside the inputs is less than the share of what
  // is saved with all; at last some of what is still banned is not: what a knapsack leaves out.
  Cut choose_within(double share) {
    const double inputs = size_of_inputs(), most = solved(TorchBans::kAll).size;
    if (most <= inputs) return solved(TorchBans::kAll).cut;
    for (TorchBans bans : {TorchBans::kListed, TorchBans::kHeavy})
      if ((solved(bans).size - inputs) / (most - inputs) < share) return solved(bans).cut;
    const std::vector<NodeId> items = list_items(solved(TorchBans::kHeavy).banned);
    if (items.empty()) return solved(TorchBans::kHeavy).cut;
    std::vector<KnapsackItem> priced;
    for (NodeId id : items)
      priced.push_back(
          {static_cast<double>(facts_.size_of(id)) / kTorchUnit / (most - inputs), facts_.count_flops(id)});
    const std::vector<std::uint8_t> is_kept = fill_knapsack(priced, share);
    IdSet<NodeId> freed(body_.nodes.size());
    for (std::size_t i = 0; i < items.size(); ++i)
      if (is_kept[i] == 0) freed.insert(items[i]);
    return solve_torch_network(facts_, TorchBans::kHeavy, &freed).cut;
  }

  const TorchSolution& solved(TorchBans bans) {
    std::optional<TorchSolution>& found = solutions_[static_cast<std::size_t>(bans)];
    if (!found) found = solve_torch_network(facts_, bans);
    return *found;
  }

  // Nothing is saved but inputs, and what must not run twice.
  Cut save_least() const {
    return make_cut(graph_, joint_, [&](NodeId id) {
      return ValueChoice{.is_recomputed = true,
                         .can_save = can_save(graph_, body_.nodes[id]),
                         .can_recompute = !facts_.runs_once(id)};
    });
  }

  double size_of_inputs() {
    std::int64_t bytes = 0;
    for (NodeId id : body_.order)
      if (facts_.is_input(id) && !joint_.backward(id)) bytes += facts_.size_of(id);
    return static_cast<double>(bytes) / kTorchUnit;
  }

  // What is banned and could run twice, the largest first, but for what shows an input or is to be
  // saved.
  std::vector<NodeId> list_items(const IdSet<NodeId>& banned) {
    std::vector<NodeId> items;
    for (NodeId id : body_.order) {
      if (!banned.contains(id) || !facts_.is_call(id) || facts_.distance_of(id) >= TorchFacts::kFar) continue;
      if (facts_.runs_once(id) || facts_.must_save(id)) continue;
      if (!facts_.is_tagged_saved(id) && !facts_.shows_input(id)) items.push_back(id);
    }
    std::ranges::stable_sort(items, std::greater<>(), [&](NodeId id) { return facts_.size_of(id); });
    return items;
  }

  const Graph& graph_;
  const Context& context_;
  const Body& body_;
  const Joint& joint_;
  TorchFacts facts_;
  std::array<std::optional<TorchSolution>, 3> solutions_;  // by bans
};

}  // namespace

std::vector<Cut> cut_as_torch(const Graph& graph, const Joint& joint, const std::vector<double>& shares) {
  TorchCut torch(graph, joint);
  std::vector<Cut> cuts;
  for (double share : shares) cuts.push_back(torch.run(share));
  return cuts;
}
Cut cut_as_torch(const Graph& graph, const Joint& joint, double share) {
  return TorchCut(graph, joint).run(share);
}

}  // namespace epweave
