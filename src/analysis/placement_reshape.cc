#include "analysis/placement_reshape.h"

#include <algorithm>
#include <vector>

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
    if (pool_.divide_exactly(b, a)) {
      auto quotient = pool_[*pool_.divide_exactly(b, a)];
      if (std::all_of(quotient.terms.begin(), quotient.terms.end(),
                      [](auto& t) { return t.coefficient.is_integer(); }))
        return true;
    }
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
      return p.any_order ? place_any(p, group) : place(p, group, runs);
    }
    return refused(ReshapeRefusal::kNotFollowed);
  }

 private:
  ExprPool& pool() { return facts_.pool(); }
  PolyId one() { return pool().poly_number(1); }
  static Followed refused(ReshapeRefusal why) { return {std::nullopt, why}; }
  std::optional<PolyId> divide(PolyId a, PolyId b) {
    const auto quotient = pool().divide_exactly(a, b);
    if (!quotient) return std::nullopt;
    const auto& terms = pool()[*quotient].terms;
    const bool is_whole =
        std::all_of(terms.begin(), terms.end(), [](const Term& t) { return t.coefficient.is_integer(); });
    return is_whole ? quotient : std::nullopt;
  }

  // Dimensions in front take up runs; the divided one holds what is left of them.
  Followed place(const Placement& p, const DimGroup& group, PolyId runs) {
    for (std::size_t j = group.to_begin; j < group.to_end; ++j) {
      if (pool().is_constant(to_[j], 1)) continue;
      if (runs != one())
        if (const auto rest = divide(runs, to_[j])) {
          runs = *rest;
          continue;
        }
      if (pool().constant(to_[j]) || (runs != one() && !divide(to_[j], runs))) break;
      Placement result = in_dim(p, j);
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
  // Equal rows: the dimension that is no number.
  Followed place_any(const Placement& p, const DimGroup& group) {
    for (std::size_t j = group.to_begin; j < group.to_end; ++j)
      if (!pool().constant(to_[j])) return {in_dim(p, j)};
    return refused(ReshapeRefusal::kBrokenExtent);
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
