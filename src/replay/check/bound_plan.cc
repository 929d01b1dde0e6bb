#include "replay/check/bound_plan.h"

#include <algorithm>

#include "ops/op.h"
#include "replay/check/sum_check.h"
#include "replay/values/message.h"

namespace epweave::replay {
namespace {

std::int64_t kept_bytes_of(const Seen& value) {
  if (value.kind != Seen::Kind::kTensor) return 0;
  return count_elements(value.sizes) * static_cast<std::int64_t>(info(value.dtype).bytes + sizeof(float) +
                                                                 sizeof(double));  // value, bound, ideal
}

BoundedNodes find_bounded(const Graph& graph, const IdSet<NodeId>& roots) {
  RegroupedSums found = find_regrouped(graph, roots);
  return {std::move(found.sums), std::move(found.reached), {}};
}

// Sums that the rewrite itself adds up, as of the gradients that several calls give for a part's
// keys (chunk{attention=prefix}), with what it made to add them, and what they stand for in A.
struct AddedSums {
  IdSet<NodeId> a, b;
  bool is_any = false;
};

bool has_role(const Node& node, ProvenanceRole role) {
  return !node.provenance.empty() && node.provenance.back().role == role;
}

bool adds(const Node& node) {
  return node.op != nullptr && node.op->family == OpFamily::kElementwise &&
         node.op->linearity == Linearity::kSum;
}

AddedSums find_added_sums(const PairedGraphs& graphs) {
  const Body& body = graphs.b.step();
  std::set<std::string_view> names;
  AddedSums found;
  for (auto id = body.order.rbegin(); id != body.order.rend(); ++id) {
    const Node& node = body.nodes[*id];
    if (adds(node) && has_role(node, ProvenanceRole::kPartInput)) {
      found.b.insert(*id);
      for (StringId name : node.provenance.back().origins) names.insert(graphs.b.text(name));
    }
    if (!found.b.contains(*id)) continue;
    for_each_input(*graphs.b.context, node, [&](NodeId input) {
      if (has_role(body.nodes[input], ProvenanceRole::kAdded)) found.b.insert(input);
    });
  }
  for (NodeId id : graphs.a.step().order)
    if (names.contains(graphs.a.text(graphs.a.step().nodes[id].name))) found.is_any |= found.a.insert(id);
  return found;
}

}  // namespace

void SumsFound::add(const Judgements& judgements) {
  for (std::size_t i = 0; i < judgements.size(); ++i) {
    const auto group = static_cast<std::int64_t>(i);
    if (judgements[i].judgement.is_sum) sums.insert(group);
    if (judgements[i].skipped.empty() && needs_bound(judgements[i].judgement)) bytes[group] = 0;
  }
}

void SumsFound::count_bytes(const PairedGraphs& graphs, const Watcher& seen_a, RankRange ranks) {
  for (auto& [group, size] : bytes)
    for (Rank rank = ranks.first; rank < ranks.end; ++rank)
      size += kept_bytes_of(seen_a.at(rank, graphs.groups[static_cast<std::size_t>(group)].whole));
}

std::string SumsFound::encode() const {
  std::vector<std::int64_t> groups, sizes;
  for (const auto& [group, size] : bytes) {
    groups.push_back(group);
    sizes.push_back(size);
  }
  return Writer().numbers({std::vector(sums.begin(), sums.end())}).numbers(groups).numbers(sizes).take();
}

void SumsFound::add_process(std::string_view text) {
  Reader reader(text);
  for (std::int64_t group : reader.numbers()) sums.insert(group);
  const std::vector<std::int64_t> groups = reader.numbers(), sizes = reader.numbers();
  if (groups.size() != sizes.size()) throw WireError("a message that no rank sends");
  for (std::size_t i = 0; i < groups.size(); ++i) bytes[groups[i]] = std::max(bytes[groups[i]], sizes[i]);
}

BoundPlan plan_bounds(const PairedGraphs& graphs, const SumsFound& found, std::size_t kept_bytes) {
  BoundPlan plan;
  AddedSums roots = find_added_sums(graphs);
  if (found.sums.empty() && (found.bytes.empty() || !roots.is_any)) return plan;
  for (std::int64_t i : found.sums) {
    const Group& group = graphs.groups[static_cast<std::size_t>(i)];
    roots.a.insert(group.whole);
    for (NodeId value : group.values) roots.b.insert(value);
  }
  plan.a = find_bounded(graphs.a, roots.a);
  plan.b = find_bounded(graphs.b, roots.b);
  plan.lots.emplace_back();
  std::size_t kept = 0;
  for (const auto& [i, bytes] : found.bytes) {
    const auto group = static_cast<std::size_t>(i);
    if (!is_reached(plan, graphs.groups[group])) continue;
    if (kept + static_cast<std::size_t>(bytes) > kept_bytes && !plan.lots.back().empty()) {
      plan.lots.emplace_back();
      kept = 0;
    }
    plan.lots.back().push_back(group);
    kept += static_cast<std::size_t>(bytes);
  }
  return plan;
}

bool is_reached(const BoundPlan& plan, const Group& group) {
  return std::any_of(group.values.begin(), group.values.end(),
                     [&](NodeId value) { return value && plan.b.nodes.contains(value); });
}

}  // namespace epweave::replay
