#include "passes/overlap_ep/overlap_ep_closures.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/host_copy.h"
#include "ops/op.h"
#include "passes/overlap_ep/overlap_ep_refusal.h"

namespace epweave {
namespace {

// A set of the region's nodes that is emptied at once, so that a part costs its own size.
class Marks {
 public:
  explicit Marks(Local size) : marked_at_(size) {}
  bool insert(Local i) { return std::exchange(marked_at_[i], now_) != now_; }  // whether it is new
  void clear() { ++now_; }

 private:
  std::vector<std::uint32_t> marked_at_;
  std::uint32_t now_ = 1;
};

class PartPlanner {
 public:
  PartPlanner(const Graph& graph, const RegionGraph& region)
      : graph_(graph), region_(region), marks_(region.size()), exchange_of_(region.size(), kNone) {}

  PartPlan plan(const EpPart& part) {
    PartPlan plan{&part, find_closures(part), std::nullopt};
    plan.copies = split_first_closure(plan);
    return plan;
  }

 private:
  static constexpr std::uint32_t kNone = ~0U;

  const Node& node(NodeId id) const { return graph_.step().nodes[id]; }

  std::vector<std::vector<Local>> find_closures(const EpPart& part) {
    const auto exchanges = static_cast<std::uint32_t>(part.exchanges.size());
    for (std::uint32_t k = 0; k < exchanges; ++k) exchange_of_[region_.local(part.exchanges[k])] = k;
    marks_.clear();
    std::vector<std::vector<Local>> closures;
    for (std::uint32_t k = 0; k < exchanges; ++k) closures.push_back(find_closure(part, k));
    for (NodeId id : part.exchanges) exchange_of_[region_.local(id)] = kNone;
    return closures;
  }

  // What exchange k needs and is not marked yet.
  std::vector<Local> find_closure(const EpPart& part, std::uint32_t k) {
    std::vector<Local> closure, stack{region_.local(part.exchanges[k])};
    while (!stack.empty()) {
      const Local i = stack.back();
      stack.pop_back();
      if (!marks_.insert(i)) continue;
      // The exchanges are in execution order: none needs a later one (S-11).
      EPWEAVE_CHECK(exchange_of_[i] == kNone || exchange_of_[i] <= k);
      if (region_.is_body(i)) closure.push_back(i);
      stack.insert(stack.end(), region_.before(i).begin(), region_.before(i).end());
    }
    std::sort(closure.begin(), closure.end());
    return closure;
  }

  std::optional<CopyParts> split_first_closure(const PartPlan& plan) {
    CopyParts parts;
    for (NodeId id : plan.part->nodes)
      if (is_count_copy(id)) parts.copies.push_back(region_.local(id));
    check_copies(plan, parts.copies);
    if (parts.copies.empty()) return std::nullopt;
    mark_needed(*plan.part, parts.copies);
    for (Local i : plan.closures.front()) {
      const bool is_copy = std::find(parts.copies.begin(), parts.copies.end(), i) != parts.copies.end();
      if (is_copy || i == plan.launch(0)) continue;
      (marks_.insert(i) ? parts.behind : parts.before).push_back(i);
    }
    return parts;
  }

  bool is_count_copy(NodeId id) const {
    static const OpInfo* const copy = find_op("aten._to_copy.default");
    return node(id).op == copy && node(id).ep.token_count_sync &&
           graph_.text(node(id).ep.token_count_sync) == "dispatch";
  }

  bool goes_to_host(NodeId id) const {
    if (const Arg* device = find_kwarg(*graph_.context, node(id), "device");
        device != nullptr && !device->is_none())
      return device->is(ArgKind::kDevice) && graph_.text(device->as_name()).starts_with("cpu");
    return is_on_host(*graph_.context, node(id));
  }

  void check_copies(const PartPlan& plan, const std::vector<Local>& copies) const {
    const std::vector<Local>& first = plan.closures.front();
    for (Local i : copies)
      if (!std::binary_search(first.begin(), first.end(), i))
        decline(graph_, region_.node(i),
                {"count-copy-place", "remove its EP_token_count_sync label or make the dispatch need it"},
                fmt::format("a token-count copy that the first exchange of part {} does not need",
                            plan.part->part));
    if (!copies.empty() && copies.size() != 2)
      decline(graph_, region_.node(copies.front()),
              {"count-copies", "label exactly the two copies of the split sizes with EP_token_count_sync"},
              fmt::format("part {} has {} token-count copies, expected 2", plan.part->part, copies.size()));
    for (Local i : copies)
      if (!goes_to_host(region_.node(i)))
        decline(graph_, region_.node(i), {"count-copy-device", "give the copy device=cpu"},
                "a token-count copy whose destination is not known to be the host");
  }

  // Marks what the copies need. A copy that needs the other's result, or another part's copy,
  // cannot be one of a batch.
  void mark_needed(const EpPart& part, const std::vector<Local>& copies) {
    marks_.clear();
    std::vector<Local> stack;
    for (Local i : copies) stack.insert(stack.end(), region_.before(i).begin(), region_.before(i).end());
    while (!stack.empty()) {
      const Local i = stack.back();
      stack.pop_back();
      if (!marks_.insert(i)) continue;
      if (region_.is_body(i) && is_count_copy(region_.node(i)))
        decline(graph_, region_.node(i), {"count-copies", "make the token-count copies independent"},
                fmt::format("the token-count copies of part {} need the result of this one", part.part));
      stack.insert(stack.end(), region_.before(i).begin(), region_.before(i).end());
    }
  }

  const Graph& graph_;
  const RegionGraph& region_;
  Marks marks_;
  std::vector<std::uint32_t> exchange_of_;  // of the part at work
};

void check_copies_alike(const Graph& graph, const std::vector<PartPlan>& parts) {
  const auto has = [](const PartPlan& p) { return p.copies.has_value(); };
  const auto with = std::find_if(parts.begin(), parts.end(), has);
  const auto without = std::find_if_not(parts.begin(), parts.end(), has);
  if (with == parts.end() || without == parts.end()) return;
  decline(
      graph, without->part->exchanges.front(),
      {"count-copies-differ", "label the token-count copies of all parts alike"},
      fmt::format("part {} has no token-count copies, part {} has", without->part->part, with->part->part));
}

}  // namespace

std::vector<PartPlan> plan_parts(const Graph& graph, const RegionGraph& region_graph,
                                 const EpRegion& region) {
  PartPlanner planner(graph, region_graph);
  std::vector<PartPlan> parts;
  for (std::size_t turn = 0; turn < region.parts.size(); ++turn)
    parts.push_back(planner.plan(region.parts[region.backward ? region.parts.size() - 1 - turn : turn]));
  check_copies_alike(graph, parts);
  return parts;
}

}  // namespace epweave
