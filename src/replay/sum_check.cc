#include "replay/sum_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/effects.h"
#include "analysis/users.h"
#include "ir/op.h"
#include "replay/block_cache.h"
#include "replay/evaluate.h"
#include "replay/floats.h"

namespace epweave::replay {
namespace {

template <class Stored, class Convert>
void convert(const Buffer<std::byte>& bytes, Buffer<double>& numbers, const Convert& to_number) {
  const auto* stored = reinterpret_cast<const Stored*>(bytes.data());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(to_number(stored[i]));
}

Buffer<double> read_numbers(const Tensor& tensor) {
  Buffer<double> numbers(static_cast<std::size_t>(tensor.numel()));
  Buffer<std::byte> bytes(numbers.size() * tensor.element_bytes());
  gather_elements(tensor, bytes.data());
  if (tensor.dtype == DType::kFloat32) {
    convert<float>(bytes, numbers, [](float x) { return x; });
  } else if (tensor.dtype == DType::kBfloat16) {
    convert<std::uint16_t>(bytes, numbers, bfloat16_to_float);
  } else {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = load_number(bytes.data() + i * tensor.element_bytes(), tensor.dtype);
  }
  return numbers;
}

// An element of A, the sum of B's, of their magnitudes, and of all bounds.
struct Compared {
  double a, sum, size, bound;
};
void add_element(BoundComparison& to, std::int64_t index, const Compared& element) {
  const double difference = std::abs(element.a - element.sum);
  const double allowed = element.bound * (1 + kBoundSlack) + element.size * 0x1p-50;
  if (!std::isfinite(allowed)) {
    to.is_bounded = false;
    return;
  }
  if (difference == 0) return;
  to.largest_share = std::max(to.largest_share, difference / allowed);
  if (difference <= allowed || !to.is_within) return;  // a NaN is outside
  to.is_within = false;
  to.index = index;
  to.difference = difference;
  to.bound = allowed;
}

void merge(BoundComparison& all, const BoundComparison& part) {
  all.is_bounded = all.is_bounded && part.is_bounded;
  all.largest_share = std::max(all.largest_share, part.largest_share);
  if (!all.is_within || part.is_within) return;
  all.is_within = false;
  all.index = part.index;
  all.difference = part.difference;
  all.bound = part.bound;
}

// Parts against their rows of the whole, whose dimension is divided in each of `blocks` equal blocks.
BoundComparison compare_rows(const BoundedValue& a, const std::vector<BoundedValue>& parts, std::size_t dim,
                             std::int64_t blocks) {
  const auto rows = [&](const BoundedValue& value, std::int64_t first, std::int64_t count) {
    return BoundedValue{cut_range(value.value, dim, first, count), cut_range(value.bound, dim, first, count)};
  };
  BoundComparison all;
  for (std::int64_t block = 0; block < blocks; ++block) {
    std::int64_t first = block * (a.value.sizes[dim] / blocks);
    for (const BoundedValue& part : parts) {
      const std::int64_t count = part.value.sizes[dim] / blocks;
      merge(all, compare_bounded(rows(a, first, count), {rows(part, block * count, count)}));
      first += count;
    }
  }
  return all;
}

// As one block, or as few as they agree for: [4 * s, w] of a grid [4, s] is cut in 4.
BoundComparison compare_cut(const BoundedValue& a, const std::vector<BoundedValue>& parts, std::size_t dim) {
  BoundComparison one_block = compare_rows(a, parts, dim, 1);
  std::int64_t common = 0;
  for (const BoundedValue& part : parts) common = std::gcd(common, part.value.sizes[dim]);
  for (std::int64_t blocks = 2; blocks <= common && !one_block.is_within; ++blocks) {
    if (common % blocks != 0) continue;
    const BoundComparison found = compare_rows(a, parts, dim, blocks);
    if (found.is_within) return found;
  }
  return one_block;
}

// Rows that parts have in orders of their own: each row of a part against a row of the whole, each once. Rows are
// taken by the sums of their elements; those with sums that are as close as their bounds allow are tried in turn.
class RowMatching {
 public:
  RowMatching(const BoundedValue& a, const std::vector<BoundedValue>& parts, std::size_t dim)
      : whole_(list_rows(a, dim)), is_taken_(whole_.size()) {
    for (const BoundedValue& part : parts) {
      std::vector<Row> rows = list_rows(part, dim);
      std::move(rows.begin(), rows.end(), std::back_inserter(rows_));
    }
    for (std::vector<Row>* rows : {&whole_, &rows_})
      std::stable_sort(rows->begin(), rows->end(), [](const Row& x, const Row& y) { return x.sum < y.sum; });
  }

  // Not within if a row has no other.
  BoundComparison compare() {
    BoundComparison all;
    std::size_t first = 0;
    for (const Row& row : rows_) {
      while (first < whole_.size() &&
             (is_taken_[first] || whole_[first].sum + slack(whole_[first], row) < row.sum))
        ++first;
      if (!take(row, first, all)) {
        all.is_within = false;
        return all;
      }
    }
    return all;
  }

 private:
  struct Row {
    std::vector<double> numbers, bounds;
    double sum = 0, bound = 0;
  };

  static std::vector<Row> list_rows(const BoundedValue& value, std::size_t dim) {
    std::vector<Row> rows(static_cast<std::size_t>(value.value.sizes[dim]));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const Buffer<double> numbers = read_numbers(cut_range(value.value, dim, at, 1)),
                           bounds = read_numbers(cut_range(value.bound, dim, at, 1));
      rows[i].numbers.assign(numbers.begin(), numbers.end());
      rows[i].bounds.assign(bounds.begin(), bounds.end());
      for (std::size_t j = 0; j < numbers.size(); ++j) {
        rows[i].sum += numbers[j];
        rows[i].bound += bounds[j] + std::abs(numbers[j]) * 0x1p-40;
      }
    }
    return rows;
  }
  static double slack(const Row& a, const Row& b) { return (a.bound + b.bound) * (1 + kBoundSlack); }

  bool take(const Row& row, std::size_t first, BoundComparison& all) {
    for (std::size_t i = first; i < whole_.size() && whole_[i].sum - slack(whole_[i], row) <= row.sum; ++i) {
      if (is_taken_[i]) continue;
      const BoundComparison found = compare(whole_[i], row);
      if (!found.is_within) continue;
      is_taken_[i] = true;
      merge(all, found);
      return true;
    }
    return false;
  }
  static BoundComparison compare(const Row& a, const Row& b) {
    BoundComparison result;
    for (std::size_t j = 0; j < a.numbers.size(); ++j)
      add_element(result, static_cast<std::int64_t>(j),
                  {a.numbers[j], b.numbers[j], std::abs(b.numbers[j]), a.bounds[j] + b.bounds[j]});
    return result;
  }

  std::vector<Row> whole_, rows_;
  std::vector<bool> is_taken_;
};

}  // namespace

std::string describe(const BoundComparison& comparison) {
  if (!comparison.is_within)
    return fmt::format("outside of the bound of its sums: {:.3g} apart at {}, the bound is {:.3g}",
                       comparison.difference, comparison.index, comparison.bound);
  if (!comparison.is_bounded) return "computed from a regrouped sum by an op that has no bound";
  return fmt::format("at most {:.3g} of the bound of its sums", comparison.largest_share);
}

BoundedValue take_bounded(const Tensor& value, ErrorBounds& bounds) {
  const Tensor bound = bounds.find_or_zero(value);
  if (!is_complex(value.dtype)) return {copy_tensor(value, bounds.memory()), bound};
  Tensor of_parts = bound;
  of_parts.sizes.push_back(2);
  of_parts.strides.push_back(0);
  return {copy_tensor(view_parts(value), bounds.memory()), copy_tensor(of_parts, bounds.memory())};
}

BoundComparison compare_bounded(const BoundedValue& a, const std::vector<BoundedValue>& b) {
  BoundComparison result;
  const Buffer<double> whole = read_numbers(a.value);
  Buffer<double> bound = read_numbers(a.bound);
  Buffer<double> sum(whole.size(), 0.0), size(whole.size(), 0.0);
  for (const BoundedValue& part : b) {
    EPWEAVE_CHECK(part.value.sizes == a.value.sizes);
    const Buffer<double> numbers = read_numbers(part.value), more = read_numbers(part.bound);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      sum[i] += numbers[i];
      size[i] += std::abs(numbers[i]);
      bound[i] += more[i];
    }
  }
  for (std::size_t i = 0; i < whole.size(); ++i)
    add_element(result, static_cast<std::int64_t>(i), {whole[i], sum[i], size[i], bound[i]});
  return result;
}

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
    if (!roots.contains(id) || node.op == nullptr || node.op->target != "operator.getitem") continue;
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

void SumChecker::see_whole(Rank rank, NodeId node, const Tensor& value, ErrorBounds& bounds) {
  if (wholes_.contains(node)) ranks_[rank].wholes[node] = take_bounded(value, bounds);
}

void SumChecker::see_value(Rank rank, NodeId node, const Tensor& value, ErrorBounds& bounds) {
  const auto group = group_of_.find(node);
  if (group == group_of_.end()) return;
  OfRank& of_rank = ranks_[rank];
  std::vector<BoundedValue>& values = of_rank.values[group->second];
  const std::vector<NodeId>& nodes = groups_[group->second].values;
  values.resize(nodes.size());
  const auto part = static_cast<std::size_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
  values[part] = take_bounded(value, bounds);
  const auto is_seen = [](const BoundedValue& seen) { return seen.value.storage != nullptr; };
  if (std::all_of(values.begin(), values.end(), is_seen)) finish(of_rank, group->second);
}

void SumChecker::finish(OfRank& of_rank, std::size_t group) {
  std::vector<BoundedValue> values = std::move(of_rank.values[group]);
  of_rank.values.erase(group);
  const auto whole = of_rank.wholes.find(groups_[group].whole);
  if (whole == of_rank.wholes.end()) return;
  const BoundedValue& a = whole->second;
  const auto is_like_whole = [&](const BoundedValue& value) { return value.value.sizes == a.value.sizes; };
  if (std::all_of(values.begin(), values.end(), is_like_whole)) {
    if (groups_[group].is_written) values.erase(values.begin(), values.end() - 1);
    of_rank.results[group] = compare_bounded(a, values);
    return;
  }
  std::vector<Extents> sizes;
  for (const BoundedValue& value : values) sizes.push_back(value.value.sizes);
  const auto dim = find_cut(a.value.sizes, sizes);
  if (!dim) return;
  BoundComparison found = compare_cut(a, values, *dim);
  if (!found.is_within)
    if (const BoundComparison matched = RowMatching(a, values, *dim).compare(); matched.is_within)
      found = matched;
  of_rank.results[group] = found;
}

std::optional<BoundComparison> SumChecker::result(Rank rank, std::size_t group) const {
  const auto found = ranks_[rank].results.find(group);
  return found == ranks_[rank].results.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace epweave::replay
