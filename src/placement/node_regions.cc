#include "placement/node_regions.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "analysis/collectives.h"
#include "analysis/element_call.h"
#include "ops/bind.h"
#include "ops/op.h"

namespace epweave {
namespace {

bool keeps_numbers(const Node& node) {
  constexpr std::array kFamilies = {
      OpFamily::kElementwise, OpFamily::kIdentity,  OpFamily::kCast,
      OpFamily::kReshape,     OpFamily::kUnsqueeze, OpFamily::kSqueeze,
      OpFamily::kExpand,      OpFamily::kEmbedding, OpFamily::kEmbeddingBackward};
  return node.op != nullptr && !node.op->writes &&
         std::ranges::find(kFamilies, node.op->family) != kFamilies.end();
}

}  // namespace

RegionId NodeRegions::region_of_root(StringId root, bool backward) {
  SideTable<StringId, RegionId>& table = backward ? backward_ : forward_;
  if (!table[root]) {
    placements_.regions.push_back({root, backward, roots_.division[root], group_of_root(root)});
    table.at(root) = RegionId(placements_.regions.size() - 1);
  }
  return table[root];
}

std::uint32_t NodeRegions::group_of_root(StringId root) {
  if (join_ == JoinMode::kLate) return roots_.division[root];
  if (!group_of_[root]) group_of_.at(root) = ++group_count_;
  return group_of_[root] - 1;
}

RegionId NodeRegions::find(NodeId id) {
  asked_.at(id) = ++asked_count_;
  const Node& node = step_.nodes[id];
  if (node.kind != NodeKind::kCall) return RegionId();
  // An element goes with its tuple: only then has it parts, or none.
  if (const NodeId tuple = tuple_of(*graph_.context, node))
    if (placements_.of(tuple).is(PlacementKind::kTuple)) return placements_.region[tuple];
  // A wait goes with its collective, of which each part has one.
  if (is_wait(node)) {
    const Arg waited = arg_of(*graph_.context, node, 0);
    const NodeId launch = waited.is_node() ? waited.as_node() : NodeId();
    if (launch && is_launch(step_.nodes[launch]) && placements_.region[launch] &&
        placements_.is_divided(launch))
      return placements_.region[launch];
  }
  if (has_family(node, OpFamily::kIota) && placements_.outside[id].is(PlacementKind::kSplit) &&
      counts_data(id))
    return RegionId();
  if (node.module) {
    const StringId root = matcher_.root_of(node.module);
    return root && roots_.modules.contains(root) ? region_of_root(root, node.is_backward()) : RegionId();
  }
  return region_of_sums(id);
}

// Whether numbers that count along the tokens become real ones, or answers: rotary positions, a
// table's rows, a mask. Those are made whole, and a part takes its share, as a part would count
// from 0. What sorts and picks rows with them has its own in each part (rows/positions.h).
bool NodeRegions::counts_data(NodeId iota) {
  if (users_.total() == 0) users_ = invert(list_inputs(*graph_.context, step_), step_.order);
  std::vector<NodeId> counted = {iota};
  std::unordered_set<NodeId> seen = {iota};
  for (std::size_t i = 0; i < counted.size(); ++i) {
    if (is_answer(counted[i])) continue;
    for (const NodeId user : users_[counted[i]]) {
      if (step_.nodes[user].kind == NodeKind::kOutput) continue;
      if (!keeps_numbers(step_.nodes[user])) return false;
      if (seen.insert(user).second) counted.push_back(user);
    }
  }
  return true;
}

bool NodeRegions::is_answer(NodeId id) const {
  const TensorType* type = tensor_of(*graph_.context, step_.nodes[id].type);
  return type != nullptr && (is_floating(type->dtype) || type->dtype == DType::kBool);
}

// Gradient accumulation that autograd inserted: backward, without a module. It joins the region
// of its latest divided input if every tensor input already has parts there; it must never cause
// a new split.
RegionId NodeRegions::region_of_sums(NodeId id) {
  const Node& node = step_.nodes[id];
  if (!node.is_backward() || graph_.text(node.target).starts_with("_c10d_functional")) return RegionId();
  RegionId latest;
  std::uint32_t last_asked = 0;
  for_each_input(*graph_.context, node, [&](NodeId input) {
    if (!placements_.region[input] || !placements_.is_divided(input) || asked_[input] < last_asked) return;
    latest = placements_.region[input];
    last_asked = asked_[input];
  });
  if (!latest || !placements_.regions[latest.index()].backward) return RegionId();
  bool has_parts = true;
  for_each_input(*graph_.context, node, [&](NodeId input) {
    const bool is_tensor = tensor_of(*graph_.context, step_.nodes[input].type) != nullptr;
    if (is_tensor && !placements_.seen_from(input, latest).is_divided()) has_parts = false;
    if (!placements_.shares_parts(input, latest) && !(taken_by_[input] == latest)) has_parts = false;
  });
  return has_parts ? latest : RegionId();
}

}  // namespace epweave
