#include "placement/placement_reshape.h"

#include <algorithm>
#include <vector>

#include "placement/placement_blocks.h"

namespace epweave {
namespace {

// Groups of consecutive dimensions of `from` and `to` with equal products, left to right.
struct DimGroup {
  std::size_t from_begin, from_end, to_begin, to_end;
};

class Grouping {
 public:
  explicit Grouping(Facts& facts) : facts_(facts), pool_(facts.pool()) {}

  // Empty if the products do not meet.
  std::vector<DimGroup> match(const std::vector<PolyId>& from, const std::vector<PolyId>& to) {
    std::vector<DimGroup> groups;
    std::size_t i = 0, j = 0;
    while (i < from.size() && j < to.size()) {
      DimGroup group{i, i + 1, j, j + 1};
      PolyId a = from[i++], b = to[j++];
      while (a != b) {
        const bool extend_from = is_smaller(a, b);
        if (extend_from ? i == from.size() : j == to.size()) return {};
        (extend_from ? a : b) =
            facts_.normalize(pool_.mul(extend_from ? a : b, extend_from ? from[i++] : to[j++]));
      }
      group.from_end = i;
      group.to_end = j;
      groups.push_back(group);
    }
    // Trailing extents of 1.
    if (!groups.empty()) {
      groups.back().from_end = from.size();
      groups.back().to_end = to.size();
    }
    return groups;
  }

 private:
  bool is_smaller(PolyId a, PolyId b) {
    if (whole_quotient(pool_, b, a)) return true;
    if (pool_.divide_exactly(a, b)) return false;
    return facts_.is_nonnegative(pool_.sub(b, a));
  }

  Facts& facts_;
  ExprPool& pool_;
};

// Follows one divided dimension through a reshape.
class ReshapeFollower {
 public:
  ReshapeFollower(Facts& facts, const TensorType& source, const TensorType& target) : facts_(facts) {
    for (ExprId e : source.sizes) from_.push_back(facts.normalize(e));
    for (ExprId e : target.sizes) to_.push_back(facts.normalize(e));
  }

  Followed follow(const Placement& p) {
    const auto dim = static_cast<std::size_t>(p.dim);
    for (const DimGroup& group : Grouping(facts_).match(from_, to_)) {
      if (dim < group.from_begin || dim >= group.from_end) continue;
      // How many runs of divided rows there are: one for each index in front of them.
      PolyId runs = p.is_local() || !p.blocks ? one() : p.blocks;
      for (std::size_t i = group.from_begin; i < dim; ++i)
        runs = facts_.normalize(pool().mul(runs, from_[i]));
      if (p.is_local() && runs != one()) return refused(ReshapeRefusal::kInnerFactor);
      if (p.any_order)
        if (const auto result = place_any(p, group)) return {result};
      return place(p, group, runs);
    }
    return refused(ReshapeRefusal::kNotFollowed);
  }

 private:
  ExprPool& pool() { return facts_.pool(); }
  PolyId one() { return pool().poly_number(1); }
  static Followed refused(ReshapeRefusal why) { return {std::nullopt, why}; }
  // Dimensions in front take up runs; the divided one holds what is left of them.
  Followed place(const Placement& p, const DimGroup& group, PolyId runs) {
    for (std::size_t j = group.to_begin; j < group.to_end; ++j) {
      if (pool().is_constant(to_[j], 1)) continue;
      if (runs != one())
        if (const auto rest = whole_quotient(pool(), runs, to_[j])) {
          runs = *rest;
          continue;
        }
      if (pool().constant(to_[j]) || (runs != one() && !whole_quotient(pool(), to_[j], runs))) break;
      Placement result = in_dim(p, j);
      result.any_order = false;
      if (!p.is_local()) result.blocks = runs == one() ? PolyId() : runs;
      return {result};
    }
    return refused(ReshapeRefusal::kBrokenExtent);
  }
  static Placement in_dim(const Placement& p, std::size_t dim) {
    Placement result = p;
    result.dim = static_cast<int>(dim);
    return result;
  }
  // Equal rows stay equal where they are neither cut nor merged.
  std::optional<Placement> place_any(const Placement& p, const DimGroup& group) {
    const auto is_one = [&](PolyId extent) { return pool().is_constant(extent, 1); };
    const auto dim = static_cast<std::size_t>(p.dim);
    for (std::size_t i = group.from_begin; i < dim; ++i)
      if (!is_one(from_[i])) return std::nullopt;
    std::size_t j = group.to_begin;
    while (j < group.to_end && is_one(to_[j])) ++j;
    if (j == group.to_end || to_[j] != from_[dim]) return std::nullopt;
    return in_dim(p, j);
  }

  Facts& facts_;
  std::vector<PolyId> from_, to_;
};

}  // namespace

Followed follow_reshape(Facts& facts, const TensorType& source, const TensorType& target,
                        const Placement& p) {
  return ReshapeFollower(facts, source, target).follow(p);
}

}  // namespace epweave
