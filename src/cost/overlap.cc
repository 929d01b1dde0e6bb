#include "cost/overlap.h"

#include <algorithm>
#include <map>

#include "analysis/all_to_alls.h"
#include "analysis/collectives.h"
#include "analysis/effects.h"
#include "analysis/ep_regions.h"
#include "analysis/users.h"
#include "ir/walk.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

class OverlapFinder {
 public:
  OverlapFinder(const Graph& graph, Extents& extents)
      : graph_(graph),
        body_(graph.step()),
        costs_(graph, extents),
        inputs_(list_inputs(*graph.context, body_)),
        users_(invert(inputs_, body_.order)),
        position_(find_positions(body_, body_.order)) {
    const Effects effects(graph, body_);
    std::vector<std::pair<NodeId, NodeId>> pairs;
    for (const OrderEdge& edge : effects.order_edges()) pairs.emplace_back(edge.after, edge.before);
    effects_ = list_pairs(body_.nodes.size(), pairs);
    find_predecessors();
  }

  OverlappedRegion find(const EpRegion& region) {
    OverlappedRegion found{region.root, region.backward, region.parts.size(), {}};
    std::uint32_t end = 0;
    for (const EpPart& part : region.parts) {
      for (NodeId id : part.nodes) end = std::max(end, position_[id] + 1);
      for (std::uint32_t k = 0; k < part.exchanges.size(); ++k)
        if (NodeId wait = find_wait(part.exchanges[k])) {
          OverlappedExchange& exchange = found.exchanges.emplace_back();
          exchange.launch = part.exchanges[k];
          exchange.wait = wait;
          exchange.part = part.part;
          exchange.index = k;
        }
    }
    std::sort(found.exchanges.begin(), found.exchanges.end(),
              [&](const auto& a, const auto& b) { return position_[a.launch] < position_[b.launch]; });
    for (OverlappedExchange& exchange : found.exchanges) {
      measure(exchange);
      if (exchange.total_under().kernels == 0) explain(exchange, region, end);
    }
    return found;
  }

  UndividedExchanges find_undivided() const {
    UndividedExchanges found;
    for (NodeId launch : body_.order) {
      const Node& node = body_.nodes[launch];
      if (!is_token_exchange(graph_, node) || node.chunk.region) continue;
      ++found.count;
      if (!has_kernel_under(launch)) ++found.exposed;
    }
    return found;
  }

 private:
  bool has_kernel_under(NodeId launch) const {
    const NodeId wait = find_wait(launch);
    if (!wait) return false;
    for (std::uint32_t i = position_[launch] + 1; i < position_[wait]; ++i)
      if (is_kernel(body_.nodes[body_.order[i]])) return true;
    return false;
  }

  NodeId find_wait(NodeId launch) const {
    for (NodeId user : users_[launch])
      if (is_wait(body_.nodes[user])) return user;
    return {};
  }

  // The launch before each on its process group.
  void find_predecessors() {
    std::map<std::pair<ArgKind, std::uint64_t>, NodeId> last;
    for (const Launch& launch : find_launches(*graph_.context, body_)) {
      NodeId& before = last[{launch.group.kind(), launch.group.bits()}];
      predecessor_.at(launch.node) = before;
      before = launch.node;
    }
  }

  void measure(OverlappedExchange& exchange) {
    if (const std::optional<Cost> cost = costs_.cost_of(exchange.launch)) exchange.message = cost->message;
    std::uint32_t alone_from = position_[exchange.launch];
    if (NodeId before = predecessor_[exchange.launch])
      if (NodeId wait = find_wait(before)) alone_from = std::max(alone_from, position_[wait]);
    for (std::uint32_t i = position_[exchange.launch] + 1; i < position_[exchange.wait]; ++i) {
      const Node& node = body_.nodes[body_.order[i]];
      if (!is_kernel(node)) continue;
      const std::optional<Cost> cost = costs_.cost_of(body_.order[i]);
      const CostClass kind = node.op != nullptr ? node.op->cost : CostClass::kMemory;
      exchange.under[static_cast<std::size_t>(kind)].add(cost);
      if (i > alone_from) exchange.alone.add(cost);
    }
  }

  // Why nothing of the region runs under the exchange: follows what needs it, and what needs
  // communication that is waited for behind it.
  void explain(OverlappedExchange& exchange, const EpRegion& region, std::uint32_t end) const {
    enum Need : std::uint8_t { kNothing, kOther, kThis };
    const std::uint32_t begin = position_[exchange.wait];
    std::vector<Need> needs(end - begin, kNothing);
    bool could_run = false;
    for (std::uint32_t i = begin; i < end; ++i) {
      const NodeId id = body_.order[i];
      const Node& node = body_.nodes[id];
      Need& need = needs[i - begin];
      if (id == exchange.wait) {
        need = kThis;
        continue;
      }
      if (is_wait(node)) need = kOther;
      for (const auto list : {inputs_[id], effects_[id]})
        for (NodeId dep : list)
          if (position_[dep] >= begin) need = std::max(need, needs[position_[dep] - begin]);
      const bool is_of_region = node.chunk.region == region.root &&
                                is_in_backward_region(node) == region.backward && node.chunk.part.has_value();
      if (need == kThis || !is_of_region || !is_kernel(node)) continue;
      ++exchange.witnesses;
      if (!exchange.witness || (need == kNothing && !could_run)) exchange.witness = id;
      could_run |= need == kNothing;
    }
    exchange.exposure = could_run          ? Exposure::kCouldRun
                        : exchange.witness ? Exposure::kOthersHeld
                                           : Exposure::kAllNeedIt;
  }

  const Graph& graph_;
  const Body& body_;
  CostModel costs_;
  NodeLists inputs_, users_, effects_;
  IdVector<NodeId, std::uint32_t> position_;
  SideTable<NodeId, NodeId> predecessor_;
};

}  // namespace

std::string_view name_of(Exposure exposure) {
  static constexpr std::array<std::string_view, 4> kNames = {"hidden", "all-need-it", "others-held",
                                                             "could-run"};
  return kNames[static_cast<std::size_t>(exposure)];
}

Work OverlappedExchange::total_under() const {
  Work total;
  for (const Work& work : under) total += work;
  return total;
}

Overlaps find_overlaps(const Graph& graph) {
  Extents extents(graph);
  OverlapFinder finder(graph, extents);
  Overlaps found;
  for (const EpRegion& region : find_ep_regions(graph).regions)
    if (region.count_exchanges() > 0) found.regions.push_back(finder.find(region));
  found.undivided = finder.find_undivided();
  for (const auto [id, node] : walk(graph.step()))
    if (is_row_exchange(*graph.context, node) && !is_labelled_exchange(node)) ++found.unlabelled;
  found.assumed = extents.assumed();
  return found;
}

}  // namespace epweave
