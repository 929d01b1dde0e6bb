#include "replay/check/sum_check.h"

#include <algorithm>
#include <numeric>

#include "analysis/effects.h"
#include "analysis/users.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "replay/check/device_comparison.h"

namespace epweave::replay {
namespace {

// Parts against their rows of the whole, whose dimension is divided in each of `blocks` equal
// blocks.
struct Cut {
  std::size_t dim = 0;
  std::int64_t blocks = 1;
};
BoundComparison compare_rows(const BoundedValue& a, const std::vector<BoundedValue>& parts, const Cut& cut,
                             const TensorOps& ops) {
  const auto& [dim, blocks] = cut;
  BoundComparison all;
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::int64_t first = block * (a.value.sizes[dim] / blocks);
    for (const BoundedValue& part : parts) {
      const std::int64_t count = part.value.sizes[dim] / blocks;
      merge(all, compare_where_they_lie(cut_range(a, dim, first, count),
                                        {cut_range(part, dim, block * count, count)}, ops));
      first += count;
    }
  }
  return all;
}

// As one block, or as few as they agree for: [4 * s, w] of a grid [4, s] is cut in 4.
BoundComparison compare_cut(const BoundedValue& a, const std::vector<BoundedValue>& parts, std::size_t dim,
                            const TensorOps& ops) {
  BoundComparison one_block = compare_rows(a, parts, {dim, 1}, ops);
  std::int64_t common = 0;
  for (const BoundedValue& part : parts) common = std::gcd(common, part.value.sizes[dim]);
  for (std::int64_t blocks = 2; blocks <= common && !one_block.is_within; ++blocks) {
    if (common % blocks != 0) continue;
    const BoundComparison found = compare_rows(a, parts, {dim, blocks}, ops);
    if (found.is_within) return found;
  }
  return one_block;
}

}  // namespace

RegroupedSums find_regrouped(const Graph& graph, const IdSet<NodeId>& roots) {
  const Body& body = graph.step();
  const NodeLists inputs = list_inputs(*graph.context, body);
  const Effects effects(*graph.context, body);
  RegroupedSums found{roots, roots};
  IdSet<NodeId> storages;
  for (NodeId id : body.order) {
    for (NodeId input : inputs[id])
      if (found.reached.contains(input) || storages.contains(effects.storage_of(input)))
        found.reached.insert(id);
    if (!found.reached.contains(id)) continue;
    for (const StorageAccess& access : effects.accesses_of(id))
      if (access.writes) storages.insert(access.storage);
  }
  // The op that makes a tuple makes the bounds of its elements.
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    if (!roots.contains(id) || !has_family(node, OpFamily::kElement)) continue;
    for (NodeId input : inputs[id]) {
      found.sums.insert(input);
      found.reached.insert(input);
    }
  }
  return found;
}

SumChecker::SumChecker(const std::vector<Group>& groups, Rank ranks) : groups_(groups), ranks_(ranks) {}

void SumChecker::start(const std::vector<std::size_t>& groups) {
  wholes_ = {};
  group_of_.clear();
  for (OfRank& of_rank : ranks_) {
    of_rank.wholes.clear();
    of_rank.values.clear();
  }
  for (std::size_t group : groups) {
    wholes_.insert(groups_[group].whole);
    for (NodeId value : groups_[group].values) group_of_[value] = group;
  }
}

void SumChecker::see_whole(Rank rank, NodeId node, const Tensor& value, const ErrorBounds& bounds) {
  if (wholes_.contains(node)) ranks_[rank].wholes[node] = take_bounded(value, bounds, Kept::kBeyond);
}

void SumChecker::see_value(Rank rank, NodeId node, const Tensor& value, const ErrorBounds& bounds) {
  const auto group = group_of_.find(node);
  if (group == group_of_.end()) return;
  OfRank& of_rank = ranks_[rank];
  std::vector<BoundedValue>& values = of_rank.values[group->second];
  const std::vector<NodeId>& nodes = groups_[group->second].values;
  values.resize(nodes.size());
  const auto part = static_cast<std::size_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
  values[part] = take_bounded(value, bounds, Kept::kForRun);
  const auto is_seen = [](const BoundedValue& seen) { return seen.value.storage != nullptr; };
  if (std::all_of(values.begin(), values.end(), is_seen)) finish(of_rank, group->second, bounds.ops());
}

void SumChecker::end_run(Rank rank) {
  ranks_[rank].values.clear();
}

void SumChecker::finish(OfRank& of_rank, std::size_t group, const TensorOps& ops) {
  std::vector<BoundedValue> values = std::move(of_rank.values[group]);
  of_rank.values.erase(group);
  const auto whole = of_rank.wholes.find(groups_[group].whole);
  if (whole == of_rank.wholes.end()) return;
  const BoundedValue a = borrow(whole->second, ops);
  const auto is_like_whole = [&](const BoundedValue& value) { return value.value.sizes == a.value.sizes; };
  if (std::all_of(values.begin(), values.end(), is_like_whole)) {
    if (groups_[group].is_chain) values.erase(values.begin(), values.end() - 1);
    of_rank.results[group] = compare_where_they_lie(a, values, ops);
    return;
  }
  std::vector<Extents> sizes;
  for (const BoundedValue& value : values) sizes.push_back(value.value.sizes);
  const auto dim = find_cut(a.value.sizes, sizes);
  if (!dim) return;
  BoundComparison found = compare_cut(a, values, *dim, ops);
  if (!found.is_within)
    if (const BoundComparison matched = match_rows_where_they_lie(a, values, *dim, ops); matched.is_within)
      found = matched;
  of_rank.results[group] = found;
}

std::optional<BoundComparison> SumChecker::result(Rank rank, std::size_t group) const {
  const auto found = ranks_[rank].results.find(group);
  return found == ranks_[rank].results.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace epweave::replay
