// Values with bounds of their errors against each other, element by element.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "replay/bounds/error_bounds.h"
#include "replay/bounds/tensor_ops.h"
#include "replay/values/block_cache.h"

namespace epweave::replay {

// How two values lie within their bounds.
struct BoundComparison {
  bool is_within = true;
  bool is_bounded = true;        // no element's bound is infinite
  double largest_share = 0;      // of |a - b| / bound
  bool has_ideals = true;        // of every element it is known what it was before rounding (ideal_values.h)
  double largest_unrounded = 0;  // of |a - b| / bound before rounding
  bool is_unrounded = false;     // the element outside is so before rounding
  std::int64_t index = -1;       // of the first element outside, row-major
  double difference = 0, bound = 0;  // there
};
std::string describe(const BoundComparison& comparison);

struct BoundedValue {
  Tensor value;
  Tensor bound;                      // float32
  std::optional<Tensor> ideal = {};  // float64; none: not known
};
// make(tensor) of each of the three.
template <class Make>
BoundedValue map_tensors(const BoundedValue& value, const Make& make) {
  BoundedValue made{make(value.value), make(value.bound), std::nullopt};
  if (value.ideal) made.ideal = make(*value.ideal);
  return made;
}
// For how long a copy of a value is kept: for the run that made it, or for later ones too.
enum class Kept : std::uint8_t { kForRun, kBeyond };
BoundedValue take_bounded(const Tensor& value, const ErrorBounds& bounds, Kept kept);  // copies
// What an earlier run kept, for this one.
BoundedValue borrow(const BoundedValue& value, const TensorOps& ops);
BoundedValue on_host(const BoundedValue& value, const TensorOps& ops);

// Indices [first, first + count) of a dimension; the same storages.
BoundedValue cut_range(const BoundedValue& value, std::size_t dim, std::int64_t first, std::int64_t count);

// One value against another, or against several that add up to it; in host memory.
BoundComparison compare_bounded(const BoundedValue& a, const std::vector<BoundedValue>& b);

// Elements that are judged by what they show together (find_seen_errors): a row of the last
// dimension; of short ones several, of which not all are rounded to their ideals by chance.
std::int64_t length_of_lot(const Extents& sizes);
// The elements from `first` on, `a` and `b` being those of one lot.
void add_lot(BoundComparison& to, const BoundedValue& a, const std::vector<BoundedValue>& b,
             std::int64_t first, double seen);

// What adding up in float64 may be off by, of the magnitudes.
inline constexpr double kSummingError = 0x1p-50;

// Ideals of two graphs may differ by this share of their bounds. What float64 rounds is 2^-29 of
// what float32 rounds, and each op's rounding is in the bound with at least that of float32.
inline constexpr double kUnroundedShare = 0x1p-24;
// Nor by more than this share of how far what is stored is seen to be from its ideal. Roundings of
// float64 take the ways that those of the stored types take, and are 2^-29 of them. A bound adds
// them up as if all had one sign, which is thousands of times more with each layer.
inline constexpr double kSeenShare = 0x1p-16;

// What a row shows is at least this share of what any row does: one in which all cancels shows what
// float64 rounds alone.
inline constexpr double kShareOfOtherRows = 0x1p-4;

struct Rounded {
  const Buffer<double>&stored, &ideals;
};
// Of each lot of `length` elements how far those of A, or B's sums, are from their ideals at most,
// and at least what storing them rounds; of what is not finite nothing. Infinite where no ideal is
// known or nothing is seen.
Buffer<double> find_seen_errors(const Rounded& a, const Rounded& b, double roundoff, std::size_t length);

// An element of A, the sum of B's, of their magnitudes, and of all bounds; and what A's element and
// B's sum were before rounding (NaN: not known).
struct Compared {
  double a, sum, size, bound;
  double ideal_a = std::numeric_limits<double>::quiet_NaN();
  double ideal_sum = std::numeric_limits<double>::quiet_NaN();
  double seen = std::numeric_limits<double>::infinity();  // find_seen_errors
};
void add_element(BoundComparison& to, std::int64_t index, const Compared& element);
void merge(BoundComparison& all, const BoundComparison& part);

// The elements, row-major.
Buffer<double> read_numbers(const Tensor& tensor);
// The ideals, row-major; NaN where they are not known.
Buffer<double> read_ideals(const BoundedValue& value);

}  // namespace epweave::replay
