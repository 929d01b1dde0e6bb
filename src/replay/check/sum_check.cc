#include "replay/check/sum_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/effects.h"
#include "analysis/element_call.h"
#include "analysis/users.h"
#include "replay/check/device_comparison.h"

namespace epweave::replay {
namespace {

// Parts are rows of the whole, whose dimension is divided in each of `blocks` equal blocks.
struct Cut {
  std::size_t dim = 0;
  std::int64_t blocks = 1;
};

// Of each block the rows [first, first + count); the same storages.
Tensor cut_blocks(const Tensor& tensor, const Cut& cut, std::int64_t first, std::int64_t count) {
  const auto dim = static_cast<std::ptrdiff_t>(cut.dim);
  const std::int64_t rows = tensor.sizes[cut.dim] / cut.blocks, stride = tensor.strides[cut.dim];
  Tensor blocks = tensor;
  blocks.offset += first * stride;
  blocks.sizes[cut.dim] = count;
  blocks.sizes.insert(blocks.sizes.begin() + dim, cut.blocks);
  blocks.strides.insert(blocks.strides.begin() + dim, rows * stride);
  return blocks;
}
BoundedValue cut_blocks(const BoundedValue& value, const Cut& cut, std::int64_t first, std::int64_t count) {
  return map_tensors(value, [&](const Tensor& tensor) { return cut_blocks(tensor, cut, first, count); });
}

BoundComparison compare_rows(const BoundedValue& a, const std::vector<BoundedValue>& parts, const Cut& cut,
                             const TensorOps& ops) {
  BoundComparison all;
  std::int64_t first = 0;
  for (const BoundedValue& part : parts) {
    const std::int64_t count = part.value.sizes[cut.dim] / cut.blocks;
    merge(all,
          compare_where_they_lie(cut_blocks(a, cut, first, count), {cut_blocks(part, cut, 0, count)}, ops));
    first += count;
  }
  return all;
}

// Which cuts the sums of rows allow: where each element is within its bound, a row's sum is, too.
class CutFinder {
 public:
  CutFinder(const BoundedValue& a, const std::vector<BoundedValue>& parts, std::size_t dim,
            const TensorOps& ops)
      : whole_(sum_rows(a, dim, ops)) {
    for (const BoundedValue& part : parts) parts_.push_back(sum_rows(part, dim, ops));
  }

  bool allows(std::size_t blocks) const {
    const std::size_t of_block = whole_.sums.size() / blocks;
    std::size_t first = 0;
    for (const RowSums& part : parts_) {
      const std::size_t count = part.sums.size() / blocks;
      for (std::size_t row = 0; row < part.sums.size(); ++row)
        if (!is_near(part, row, row / count * of_block + first + row % count)) return false;
      first += count;
    }
    return true;
  }

 private:
  // What has no number says nothing.
  bool is_near(const RowSums& part, std::size_t row, std::size_t of_whole) const {
    const double apart = std::abs(part.sums[row] - whole_.sums[of_whole]);
    return !(apart > part.reach[row] + whole_.reach[of_whole]);
  }

  RowSums whole_;
  std::vector<RowSums> parts_;
};

// As one block, or as few as they agree for: [4 * s, w] of a grid [4, s] is cut in 4.
BoundComparison compare_cut(const BoundedValue& a, const std::vector<BoundedValue>& parts, std::size_t dim,
                            const TensorOps& ops) {
  BoundComparison one_block = compare_rows(a, parts, {dim, 1}, ops);
  std::int64_t common = 0;
  for (const BoundedValue& part : parts) common = std::gcd(common, part.value.sizes[dim]);
  if (one_block.is_within || common < 2) return one_block;
  const CutFinder cuts(a, parts, dim, ops);
  for (std::int64_t blocks = 2; blocks <= common; ++blocks) {
    if (common % blocks != 0 || !cuts.allows(static_cast<std::size_t>(blocks))) continue;
    const BoundComparison found = compare_rows(a, parts, {dim, blocks}, ops);
    if (found.is_within) return found;
  }
  return one_block;
}

}  // namespace

RegroupedSums find_regrouped(const Graph& graph, const IdSet<NodeId>& roots) {
  const Body& body = graph.step();
  const NodeLists inputs = list_inputs(*graph.context, body);
  const Effects effects(graph, body);
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
    const NodeId tuple = roots.contains(id) ? tuple_of(*graph.context, body.nodes[id]) : NodeId();
    if (!tuple) continue;
    found.sums.insert(tuple);
    found.reached.insert(tuple);
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
