#include "replay/check/bound_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "replay/kernels/math/portable_math.h"
#include "replay/run/watch_values.h"
#include "replay/values/evaluate.h"

namespace epweave::replay {
namespace {

template <class Stored, class Convert>
void convert(const Buffer<std::byte>& bytes, Buffer<double>& numbers, const Convert& to_number) {
  const auto* stored = reinterpret_cast<const Stored*>(bytes.data());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(to_number(stored[i]));
}

}  // namespace

Buffer<double> read_numbers(const Tensor& tensor) {
  Buffer<double> numbers(static_cast<std::size_t>(tensor.numel()));
  Buffer<std::byte> bytes(numbers.size() * tensor.element_bytes());
  gather_elements(tensor, bytes.data());
  if (tensor.dtype == DType::kFloat32) {
    convert<float>(bytes, numbers, [](float x) { return x; });
  } else if (tensor.dtype == DType::kBfloat16) {
    convert<std::uint16_t>(bytes, numbers, math::float_from_bf16);
  } else {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = load_number(bytes.data() + i * tensor.element_bytes(), tensor.dtype);
  }
  return numbers;
}

Buffer<double> read_ideals(const BoundedValue& value) {
  if (value.ideal) return read_numbers(*value.ideal);
  return Buffer<double>(static_cast<std::size_t>(value.value.numel()),
                        std::numeric_limits<double>::quiet_NaN());
}

void add_element(BoundComparison& to, std::int64_t index, const Compared& element) {
  if (std::isinf(element.a) && element.a == element.sum) {  // masked in both graphs
    to.is_bounded = to.is_bounded && std::isfinite(element.bound);
    return;
  }
  const double difference = std::abs(element.a - element.sum);
  const double allowed = element.bound * (1 + kBoundSlack) + element.size * kSummingError;
  if (!std::isfinite(allowed)) {
    to.is_bounded = false;
    return;
  }
  const double unrounded = std::abs(element.ideal_a - element.ideal_sum);
  const double allowed_unrounded = std::min(allowed * kUnroundedShare, element.seen * kSeenShare);
  to.has_ideals = to.has_ideals && !std::isnan(unrounded);
  if (unrounded > 0) to.largest_unrounded = std::max(to.largest_unrounded, unrounded / allowed);
  if (difference > 0) to.largest_share = std::max(to.largest_share, difference / allowed);
  const bool is_near = difference <= allowed;  // a NaN is not
  const bool is_same_sum = !(unrounded > allowed_unrounded);
  if ((is_near && is_same_sum) || !to.is_within) return;
  to.is_within = false;
  to.is_unrounded = is_near;
  to.index = index;
  to.difference = is_near ? unrounded : difference;
  to.bound = is_near ? allowed_unrounded : allowed;
}

void merge(BoundComparison& all, const BoundComparison& part) {
  all.is_bounded = all.is_bounded && part.is_bounded;
  all.largest_share = std::max(all.largest_share, part.largest_share);
  all.has_ideals = all.has_ideals && part.has_ideals;
  all.largest_unrounded = std::max(all.largest_unrounded, part.largest_unrounded);
  if (!all.is_within || part.is_within) return;
  all.is_within = false;
  all.is_unrounded = part.is_unrounded;
  all.index = part.index;
  all.difference = part.difference;
  all.bound = part.bound;
}

std::string describe(const BoundComparison& comparison) {
  if (!comparison.is_within && comparison.is_unrounded)
    return fmt::format("another sum: before rounding {:.3g} apart at {}, float64 explains {:.3g}",
                       comparison.difference, comparison.index, comparison.bound);
  if (!comparison.is_within)
    return fmt::format("outside of the bound of its sums: {:.3g} apart at {}, the bound is {:.3g}",
                       comparison.difference, comparison.index, comparison.bound);
  if (!comparison.is_bounded) return "computed from a regrouped sum by an op that has no bound";
  return fmt::format("at most {:.3g} of the bound of its sums", comparison.largest_share);
}

BoundedValue take_bounded(const Tensor& value, const ErrorBounds& bounds, Kept kept) {
  const TensorOps& ops = bounds.ops();
  const auto keep = [&](const Tensor& dense) { return kept == Kept::kForRun ? dense : ops.lasting(dense); };
  Tensor numbers = value, bound = bounds.find_or_zero(value);
  if (is_complex(value.dtype)) {
    numbers = view_parts(value);
    bound.sizes.push_back(2);
    bound.strides.push_back(0);
    bound = ops.copied(bound);
  }
  BoundedValue taken{keep(ops.copied(numbers)), keep(bound), std::nullopt};
  if (has_ideals(numbers.dtype)) taken.ideal = keep(bounds.ideals().find(numbers));
  return taken;
}

BoundedValue borrow(const BoundedValue& value, const TensorOps& ops) {
  return map_tensors(value, [&](const Tensor& tensor) { return ops.borrow(tensor); });
}

BoundedValue on_host(const BoundedValue& value, const TensorOps& ops) {
  return map_tensors(value, [&](const Tensor& tensor) { return ops.on_host(tensor); });
}

BoundedValue cut_range(const BoundedValue& value, std::size_t dim, std::int64_t first, std::int64_t count) {
  return map_tensors(value, [&](const Tensor& tensor) { return cut_range(tensor, dim, first, count); });
}

Buffer<double> find_seen_errors(const Rounded& a, const Rounded& b, double roundoff, std::size_t length) {
  Buffer<double> seen((a.stored.size() + length - 1) / length, 0.0);
  double most_of_all = 0;
  for (std::size_t i = 0; i < a.stored.size(); ++i) {
    double here = roundoff * std::abs(a.ideals[i]);
    for (const Rounded* side : {&a, &b})
      here = std::fmax(here, std::abs(side->stored[i] - side->ideals[i]));  // passes over NaN
    if (!std::isfinite(here)) continue;
    seen[i / length] = std::fmax(seen[i / length], here);
    most_of_all = std::fmax(most_of_all, here);
  }
  for (double& most : seen) {
    most = std::fmax(most, most_of_all * kShareOfOtherRows);
    if (most == 0) most = std::numeric_limits<double>::infinity();
  }
  return seen;
}

namespace {

// A's elements and B's sums.
struct ComparedElements {
  ComparedElements(const BoundedValue& a, const std::vector<BoundedValue>& b)
      : whole(read_numbers(a.value)),
        bound(read_numbers(a.bound)),
        ideal(read_ideals(a)),
        sum(whole.size(), 0.0),
        size(whole.size(), 0.0),
        ideal_sum(whole.size(), 0.0) {
    for (const BoundedValue& part : b) {
      EPWEAVE_CHECK(part.value.sizes == a.value.sizes);
      const Buffer<double> numbers = read_numbers(part.value), more = read_numbers(part.bound),
                           ideals = read_ideals(part);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        sum[i] += numbers[i];
        size[i] += std::abs(numbers[i]);
        bound[i] += more[i];
        ideal_sum[i] += ideals[i];
      }
    }
  }
  Compared at(std::size_t i, double seen) const {
    return {whole[i], sum[i], size[i], bound[i], ideal[i], ideal_sum[i], seen};
  }
  Buffer<double> whole, bound, ideal, sum, size, ideal_sum;
};

}  // namespace

std::int64_t length_of_lot(const Extents& sizes) {
  constexpr std::int64_t kFewest = 64;
  return std::max(sizes.empty() ? 1 : sizes.back(), kFewest);
}

void add_lot(BoundComparison& to, const BoundedValue& a, const std::vector<BoundedValue>& b,
             std::int64_t first, double seen) {
  const ComparedElements numbers(a, b);
  for (std::size_t i = 0; i < numbers.whole.size(); ++i)
    add_element(to, first + static_cast<std::int64_t>(i), numbers.at(i, seen));
}

BoundComparison compare_bounded(const BoundedValue& a, const std::vector<BoundedValue>& b) {
  BoundComparison result;
  const ComparedElements numbers(a, b);
  const auto length = static_cast<std::size_t>(length_of_lot(a.value.sizes));
  const Buffer<double> seen = find_seen_errors(
      {numbers.whole, numbers.ideal}, {numbers.sum, numbers.ideal_sum}, unit_roundoff(a.value.dtype), length);
  for (std::size_t i = 0; i < numbers.whole.size(); ++i)
    add_element(result, static_cast<std::int64_t>(i), numbers.at(i, seen[i / length]));
  return result;
}

}  // namespace epweave::replay
