#include "ir/types/layout.h"

#include <algorithm>
#include <numeric>

namespace epweave {
namespace {

// a >= b for a, b >= 0, in the sense TensorIterator sorts strides: a multiple counts as larger.
bool is_at_least(Facts& facts, ExprId a, ExprId b) {
  ExprPool& pool = facts.pool();
  const auto x = pool.constant(a), y = pool.constant(b);
  if (x && y) return *y == 0 || (*x != 0 && *x >= *y);
  if (is_zero(facts, b)) return true;
  if (is_zero(facts, a)) return false;
  return facts.at_least(a, b) || pool.is_constant(facts.normalize(pool.mod(a, b)), 0);
}

// -1: dimension `a` is inside `b`; 1: the other way round; 0: the strides do not say.
int compare_dims(Facts& facts, std::span<const ExprId> sizes, std::span<const Layout> operands, std::size_t a,
                 std::size_t b) {
  for (const Layout& operand : operands) {
    const ExprId x = operand.strides[a], y = operand.strides[b];
    if (is_zero(facts, x) || is_zero(facts, y)) continue;
    if (facts.equal(x, y)) {
      if (is_at_least(facts, sizes[b], sizes[a])) continue;
      return 1;
    }
    if (is_at_least(facts, y, x)) return -1;
    if (is_at_least(facts, x, y)) return 1;
  }
  return 0;
}

// The dimensions in the order in which the operands' memory runs, innermost first.
std::vector<std::size_t> sort_dims(Facts& facts, std::span<const ExprId> sizes,
                                   std::span<const Layout> operands) {
  std::vector<std::size_t> order(sizes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  // Insertion sort that skips what cannot be compared, as TensorIterator's.
  for (std::size_t i = 1; i < order.size(); ++i) {
    std::size_t at = i;
    for (std::size_t j = i; j-- > 0;) {
      const int comparison = compare_dims(facts, sizes, operands, order[j], order[at]);
      if (comparison > 0) {
        std::swap(order[j], order[at]);
        at = j;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  return order;
}

}  // namespace

bool equal_each(Facts& facts, std::span<const ExprId> a, std::span<const ExprId> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](ExprId x, ExprId y) { return facts.equal(x, y); });
}

bool has_symbol(Facts& facts, std::span<const ExprId> extents) {
  return std::any_of(extents.begin(), extents.end(), [&](ExprId e) { return !facts.pool().constant(e); });
}

bool is_one(Facts& facts, ExprId extent) {
  if (auto number = facts.pool().constant(extent)) return *number == 1;
  return facts.pool().is_constant(facts.normalize(extent), 1);
}

bool is_zero(Facts& facts, ExprId extent) {
  if (auto number = facts.pool().constant(extent)) return *number == 0;
  return facts.pool().is_constant(facts.normalize(extent), 0);
}

ExprId product(Facts& facts, std::span<const ExprId> extents) {
  ExprId result = facts.pool().number(1);
  for (ExprId extent : extents) result = facts.pool().mul(result, extent);
  return result;
}

ExprId sum(Facts& facts, std::span<const ExprId> extents) {
  return facts.pool().sum(extents);
}

ExprId ceil_div(Facts& facts, ExprId a, std::int64_t b) {
  ExprPool& pool = facts.pool();
  if (b == 1) return a;
  return pool.floordiv(pool.add(a, pool.number(b - 1)), pool.number(b));
}

Dims contiguous_strides(Facts& facts, std::span<const ExprId> sizes) {
  ExprPool& pool = facts.pool();
  const ExprId one = pool.number(1);
  Dims strides(sizes.size());
  ExprId stride = one;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    if (i == 0) break;
    stride = pool.mul(stride, facts.at_least(sizes[i], one) ? sizes[i] : pool.max(one, sizes[i]));
  }
  return strides;
}

Dims filled_strides(Facts& facts, std::span<const ExprId> sizes, std::span<const std::size_t> fill) {
  Dims strides(sizes.size());
  ExprId stride = facts.pool().number(1);
  for (std::size_t dim : fill) {
    strides[dim] = stride;
    stride = facts.pool().mul(stride, sizes[dim]);
  }
  return strides;
}

bool is_contiguous(Facts& facts, Layout layout) {
  ExprId expected = facts.pool().number(1);
  for (std::size_t i = layout.sizes.size(); i-- > 0;) {
    if (is_one(facts, layout.sizes[i])) continue;
    if (!facts.equal_strides(layout.strides[i], expected)) return false;
    expected = facts.pool().mul(expected, layout.sizes[i]);
  }
  return true;
}

bool is_dense(Facts& facts, Layout layout) {
  if (is_contiguous(facts, layout)) return true;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < layout.sizes.size(); ++i)
    if (!is_one(facts, layout.sizes[i])) order.push_back(i);
  // Each dimension must follow the one whose stride is the extent filled so far.
  ExprId expected = facts.pool().number(1);
  while (!order.empty()) {
    const auto next = std::find_if(order.begin(), order.end(), [&](std::size_t dim) {
      return facts.equal_strides(layout.strides[dim], expected);
    });
    if (next == order.end()) return false;
    expected = facts.pool().mul(expected, layout.sizes[*next]);
    order.erase(next);
  }
  return true;
}

Dims preserved_strides(Facts& facts, Layout layout) {
  if (is_dense(facts, layout)) return Dims(layout.strides.begin(), layout.strides.end());
  return elementwise_strides(facts, layout.sizes, std::span(&layout, 1));
}

Dims broadcast_strides(Facts& facts, std::span<const ExprId> sizes, Layout operand) {
  const ExprId zero = facts.pool().number(0);
  const std::size_t missing = sizes.size() - operand.sizes.size();
  Dims strides(sizes.size(), zero);
  for (std::size_t i = missing; i < sizes.size(); ++i) {
    const bool is_stretched = is_one(facts, operand.sizes[i - missing]) && !is_one(facts, sizes[i]);
    strides[i] = is_stretched ? zero : operand.strides[i - missing];
  }
  return strides;
}

Dims elementwise_strides(Facts& facts, std::span<const ExprId> sizes, std::span<const Layout> operands) {
  // TensorIterator's fast path wants operands of one shape; FakeTensor's, which symbolic shapes
  // take, does not.
  const bool is_fast = has_symbol(facts, sizes) ||
                       std::all_of(operands.begin(), operands.end(),
                                   [&](const Layout& o) { return equal_each(facts, o.sizes, sizes); });
  if (is_fast &&
      std::all_of(operands.begin(), operands.end(), [&](const Layout& o) { return is_contiguous(facts, o); }))
    return contiguous_strides(facts, sizes);
  // All of the result's shape and with the same dense strides: kept, whatever order the dimensions
  // have.
  const Layout& first = operands.front();
  if (std::all_of(operands.begin(), operands.end(),
                  [&](const Layout& o) {
                    return equal_each(facts, o.sizes, sizes) && equal_each(facts, o.strides, first.strides);
                  }) &&
      is_dense(facts, first))
    return Dims(first.strides.begin(), first.strides.end());

  std::vector<Dims> expanded;
  expanded.reserve(operands.size());
  std::vector<Layout> layouts;
  for (const Layout& operand : operands) {
    expanded.push_back(broadcast_strides(facts, sizes, operand));
    layouts.push_back({sizes, expanded.back()});
  }
  const std::vector<std::size_t> order = sort_dims(facts, sizes, layouts);
  // Contiguous in that order.
  Dims permuted;
  for (std::size_t i = order.size(); i-- > 0;) permuted.push_back(sizes[order[i]]);
  const Dims physical = contiguous_strides(facts, permuted);
  Dims strides(sizes.size());
  for (std::size_t i = 0; i < order.size(); ++i) strides[order[order.size() - 1 - i]] = physical[i];
  return strides;
}

std::vector<std::size_t> fill_order(Facts& facts, std::span<const ExprId> strides, Ties ties) {
  std::vector<std::size_t> order(strides.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (ties == Ties::kLastInside) std::reverse(order.begin(), order.end());
  // Insertion sort: comparisons of symbolic strides may be undecided, and those keep their order.
  for (std::size_t i = 1; i < order.size(); ++i)
    for (std::size_t j = i; j > 0; --j) {
      const ExprId inner = strides[order[j]], outer = strides[order[j - 1]];
      if (facts.equal(inner, outer) || !facts.at_least(outer, inner)) break;
      std::swap(order[j], order[j - 1]);
    }
  return order;
}

}  // namespace epweave
