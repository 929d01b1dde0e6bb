#include "replay/check/device_comparison.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "replay/check/row_matching.h"
#include "replay/run/watch_values.h"

namespace epweave::replay {
namespace {

constexpr double kNoIdeal = std::numeric_limits<double>::quiet_NaN();
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Elements of which intermediate numbers are held at a time.
constexpr std::int64_t kBlockElements = std::int64_t{1} << 22;

// Row-major, of one dimension.
BoundedValue flatten(const BoundedValue& value, const TensorOps& ops) {
  return map_tensors(value, [&](const Tensor& tensor) {
    const Tensor dense = ops.dense(tensor);
    return dense.view({dense.numel()}, {1}, dense.offset);
  });
}

// Some lots, as [lots, length].
struct Block {
  std::int64_t first = 0, lots = 0, length = 0;
  Tensor of(const Tensor& flat) const { return flat.view({lots, length}, {length, 1}, flat.offset + first); }
};

// Elements that are judged together, and how far they may be off before rounding: by what their lot
// shows (find_seen_errors), or by a share of their bounds alone.
enum class Limit : std::uint8_t { kOfLots, kOfBounds };
struct Lots {
  std::int64_t length = 1;
  Limit limit = Limit::kOfLots;
};

// What is found of each lot.
enum Column : std::int64_t { kOpen, kUnknownIdeal, kShare, kUnrounded, kOutside, kColumnCount };

// Of one lot; of all: the most.
BoundComparison read_columns(const double* found, std::int64_t step) {
  BoundComparison result;
  result.is_within = found[kOutside * step] == 0;
  result.is_bounded = found[kOpen * step] == 0;
  result.has_ideals = found[kUnknownIdeal * step] == 0;
  result.largest_share = found[kShare * step];
  result.largest_unrounded = found[kUnrounded * step];
  return result;
}

class Comparison {
 public:
  Comparison(const BoundedValue& a, const std::vector<BoundedValue>& b, const Lots& lots,
             const TensorOps& ops)
      : ops_(ops),
        a_(flatten(a, ops)),
        roundoff_(unit_roundoff(a.value.dtype)),
        count_(a.value.numel()),
        length_(lots.length),
        limit_(lots.limit) {
    for (const BoundedValue& part : b) {
      EPWEAVE_CHECK(part.value.sizes == a.value.sizes);
      b_.push_back(flatten(part, ops));
    }
  }

  BoundComparison find() {
    if (count_ == 0) return {};
    find_columns();
    const Tensor all = ops_.on_host(ops_.apply(named::kAmax, {found_, Value::list({std::int64_t{1}})}));
    const BoundComparison all_lots = read_columns(all.data<double>(), 1);
    if (all_lots.is_within) return all_lots;
    BoundComparison found = locate();
    merge(found, all_lots);
    return found;
  }
  // Of each lot by itself, without the place of what is outside.
  std::vector<BoundComparison> find_lots() {
    find_columns();
    const Tensor all = ops_.on_host(found_);
    std::vector<BoundComparison> lots;
    for (std::int64_t lot = 0; lot < all.sizes[1]; ++lot)
      lots.push_back(read_columns(all.data<double>() + lot, all.sizes[1]));
    return lots;
  }

 private:
  void find_columns() {
    const std::int64_t lots = (count_ + length_ - 1) / length_;
    seen_ = ops_.filled(DType::kFloat64, {lots}, kNoLimit);
    if (limit_ == Limit::kOfLots) find_seen();
    found_ = make_tensor(ops_.memory(), DType::kFloat64, {kColumnCount, lots});
    for_each_block([&](const Block& block) { compare(block); });
  }

  template <class F>
  void for_each_block(const F& f) const {
    const std::int64_t whole = count_ / length_, step = std::max<std::int64_t>(kBlockElements / length_, 1);
    for (std::int64_t lot = 0; lot < whole; lot += step)
      f(Block{lot * length_, std::min(step, whole - lot), length_});
    if (const std::int64_t rest = count_ % length_; rest != 0) f(Block{count_ - rest, 1, rest});
  }

  Tensor apply(std::string_view target, const Tensor& x) const { return ops_.apply(target, {x}); }
  Tensor apply(std::string_view target, const Tensor& x, const Value& y) const {
    return ops_.apply(target, {x, y});
  }
  Tensor distance(const Tensor& x, const Tensor& y) const {
    return apply(named::kAbs, apply(named::kSub, x, y));
  }
  Tensor add(const Tensor& x, const Tensor& y) const { return apply(named::kAdd, x, y); }
  Tensor times(const Tensor& x, double factor) const { return apply(named::kMulNumber, x, factor); }
  Tensor both(const Tensor& x, const Tensor& y) const { return apply(named::kLogicalAnd, x, y); }

  Tensor wide(const Tensor& flat, const Block& block) const {
    return ops_.cast(block.of(flat), DType::kFloat64);
  }
  Tensor ideal_of(const BoundedValue& value, const Block& block) const {
    return value.ideal ? block.of(*value.ideal) : ops_.filled(DType::kFloat64, {1, 1}, kNoIdeal);
  }
  // Of B's parts.
  template <class Take>
  Tensor sum(const Take& take) const {
    Tensor total = take(b_.front());
    for (std::size_t i = 1; i < b_.size(); ++i) total = add(total, take(b_[i]));
    return total;
  }
  Tensor sum_of_values(const Block& block) const {
    return sum([&](const BoundedValue& part) { return wide(part.value, block); });
  }
  Tensor sum_of_ideals(const Block& block) const {
    return sum([&](const BoundedValue& part) { return ideal_of(part, block); });
  }

  Tensor most_of_rows(const Tensor& x) const {
    return apply(named::kAmax, x, Value::list({std::int64_t{1}}));
  }
  // The numbers of some lots among those of all.
  Tensor slots(const Tensor& row, const Block& block) const {
    return row.view({block.lots}, {1}, row.offset + block.first / length_);
  }
  Tensor slots(Column column, const Block& block) const {
    const Tensor row = found_.view({found_.sizes[1]}, {1}, found_.offset + column * found_.sizes[1]);
    return slots(row, block);
  }
  void note(Column column, const Block& block, const Tensor& of_rows) const {
    ops_.copy(of_rows, slots(column, block));
  }
  void note_any(Column column, const Block& block, const Tensor& flags) const {
    note(column, block, apply(named::kAnyOfRows, flags, std::int64_t{1}));
  }

  // find_seen_errors()
  void find_seen() {
    const Tensor zero = ops_.filled(DType::kFloat64, {1, 1}, 0);
    const auto larger = [&](const Tensor& x, const Tensor& y) { return apply(named::kFmax, x, y); };
    for_each_block([&](const Block& block) {
      const Tensor ideal = ideal_of(a_, block);
      Tensor most = distance(wide(a_.value, block), ideal);
      most = larger(most, distance(sum_of_values(block), sum_of_ideals(block)));
      most = larger(larger(most, times(apply(named::kAbs, ideal), roundoff_)), zero);
      most = ops_.apply(named::kWhere, {apply(named::kLtNumber, most, kNoLimit), most, zero});
      ops_.copy(most_of_rows(most), slots(seen_, block));
    });
    const Tensor of_all = times(apply(named::kAmax, seen_, Value::list({})), kShareOfOtherRows);
    seen_ = larger(seen_, of_all.view({1}, {1}, of_all.offset));
    const Tensor is_nothing = apply(named::kEqNumber, seen_, 0.0);
    seen_ = ops_.apply(named::kWhere, {is_nothing, ops_.filled(DType::kFloat64, {1}, kNoLimit), seen_});
  }

  // add_element() of each element.
  void compare(const Block& block) const {
    const Tensor zero = ops_.filled(DType::kFloat64, {1, 1}, 0);
    const Tensor is_infinite = apply(named::kEqNumber, apply(named::kAbs, wide(a_.value, block)), kNoLimit);
    const Tensor is_same_infinity =
        both(is_infinite, apply(named::kEq, wide(a_.value, block), sum_of_values(block)));
    const bool has_same_infinity = ops_.any(is_same_infinity);
    // Elements that are not the same infinity in both; there 0.
    const auto others = [&](const Tensor& of) {
      return has_same_infinity ? ops_.apply(named::kWhere, {is_same_infinity, zero, of}) : of;
    };
    const Tensor whole = others(wide(a_.value, block)), total = others(sum_of_values(block));
    Tensor bound = wide(a_.bound, block);
    for (const BoundedValue& part : b_) bound = add(bound, wide(part.bound, block));
    const Tensor size =
        others(sum([&](const BoundedValue& part) { return apply(named::kAbs, wide(part.value, block)); }));
    const Tensor difference = distance(whole, total);
    const Tensor allowed = add(times(bound, 1 + kBoundSlack), times(size, kSummingError));
    const Tensor is_bounded = apply(named::kLtNumber, allowed, kNoLimit);
    const Tensor unrounded = others(distance(ideal_of(a_, block), sum_of_ideals(block)));
    const Tensor seen =
        slots(seen_, block).view({block.lots, 1}, {1, 1}, seen_.offset + block.first / length_);
    const Tensor limit = apply(named::kMinimum, times(allowed, kUnroundedShare), times(seen, kSeenShare));
    const Tensor is_far = apply(named::kLogicalNot, apply(named::kLe, difference, allowed));
    const Tensor is_other = apply(named::kGt, unrounded, limit);
    const auto share = [&](const Tensor& of) {
      const Tensor counts = both(is_bounded, apply(named::kGtNumber, of, 0.0));
      return most_of_rows(ops_.apply(named::kWhere, {counts, apply(named::kDiv, of, allowed), zero}));
    };
    note(kShare, block, share(difference));
    note(kUnrounded, block, share(unrounded));
    note_any(kOpen, block, apply(named::kLogicalNot, is_bounded));
    const Tensor is_unknown = both(is_bounded, apply(named::kIsnan, unrounded));
    note_any(kUnknownIdeal, block, is_unknown);
    const Tensor is_outside = apply(named::kLogicalOr, is_far, is_other);
    note_any(kOutside, block, both(is_bounded, is_outside));
  }

  // The first element outside, in the first lot that has one.
  BoundComparison locate() const {
    const Tensor outside = found_.view({found_.sizes[1]}, {1}, found_.offset + kOutside * found_.sizes[1]);
    const std::int64_t lot = *ops_.on_host(apply(named::kArgmax, outside)).data<std::int64_t>();
    const std::int64_t first = lot * length_, count = std::min(length_, count_ - first);
    const auto cut = [&](const BoundedValue& value) {
      return on_host(cut_range(value, 0, first, count), ops_);
    };
    std::vector<BoundedValue> parts;
    for (const BoundedValue& part : b_) parts.push_back(cut(part));
    const double seen = *ops_.on_host(cut_range(seen_, 0, lot, 1)).data<double>();
    BoundComparison found;
    add_lot(found, cut(a_), parts, first, seen);
    return found;
  }

  const TensorOps& ops_;
  BoundedValue a_;
  std::vector<BoundedValue> b_;
  double roundoff_;
  std::int64_t count_, length_;
  Limit limit_;
  Tensor seen_;   // of each lot
  Tensor found_;  // [kColumnCount, lots]
};

// The rows of a dimension as [rows, elements of each], row-major.
Tensor list_rows(const Tensor& tensor, std::size_t dim, const TensorOps& ops) {
  Tensor front = tensor;
  std::rotate(front.sizes.begin(), front.sizes.begin() + static_cast<std::ptrdiff_t>(dim),
              front.sizes.begin() + static_cast<std::ptrdiff_t>(dim) + 1);
  std::rotate(front.strides.begin(), front.strides.begin() + static_cast<std::ptrdiff_t>(dim),
              front.strides.begin() + static_cast<std::ptrdiff_t>(dim) + 1);
  const Tensor dense = ops.dense(front);
  const std::int64_t rows = tensor.sizes[dim], length = tensor.numel() / std::max<std::int64_t>(rows, 1);
  return dense.view({rows, length}, {length, 1}, dense.offset);
}

// Calls f(first, count) for rows of `length` elements, as many as are held at a time.
template <class F>
void for_each_stretch(std::int64_t rows, std::int64_t length, const F& f) {
  const std::int64_t step = std::max<std::int64_t>(kBlockElements / std::max<std::int64_t>(length, 1), 1);
  for (std::int64_t first = 0; first < rows; first += step) f(first, std::min(step, rows - first));
}

// Of [rows, elements of each] in float64, what `make` gives of the elements.
template <class Make>
Tensor sum_each(const Tensor& rows, const TensorOps& ops, const Make& make) {
  const Tensor sums = make_tensor(ops.memory(), DType::kFloat64, {rows.sizes[0]});
  for_each_stretch(rows.sizes[0], rows.sizes[1], [&](std::int64_t first, std::int64_t count) {
    const Tensor elements = ops.cast(cut_range(rows, 0, first, count), DType::kFloat64);
    ops.copy(ops.apply(named::kSum, {make(elements), Value::list({std::int64_t{1}})}),
             cut_range(sums, 0, first, count));
  });
  return sums;
}
Tensor sum_each(const Tensor& rows, const TensorOps& ops) {
  return sum_each(rows, ops, [](const Tensor& elements) { return elements; });
}

std::vector<double> read(const Tensor& numbers, const TensorOps& ops) {
  const Tensor host = ops.on_host(numbers);
  return {host.data<double>(), host.data<double>() + host.numel()};
}

// The sums of rows where they lie: of their elements, of the magnitudes and of the bounds.
struct SumsOfRows {
  Tensor values, magnitudes, bounds;
  std::int64_t length;  // elements of a row
};
// Of [rows, elements of each].
SumsOfRows sum_listed(const BoundedValue& rows, const TensorOps& ops) {
  const auto magnitude = [&](const Tensor& elements) { return ops.apply(named::kAbs, {elements}); };
  return {sum_each(rows.value, ops), sum_each(rows.value, ops, magnitude), sum_each(rows.bound, ops),
          rows.value.sizes[1]};
}
RowSums read(const SumsOfRows& of, const TensorOps& ops) {
  RowSums found{read(of.values, ops), read(of.magnitudes, ops)};
  const std::vector<double> bounds = read(of.bounds, ops);
  // Adding up in float64 rounds with each term.
  const double rounding = static_cast<double>(of.length + 4) * kSummingError;
  for (std::size_t i = 0; i < bounds.size(); ++i)
    found.reach[i] = found.reach[i] * rounding + bounds[i] * (1 + kBoundSlack);
  return found;
}

// [rows, elements of each], in the order of their sums, with these.
struct OrderedRows {
  BoundedValue rows;
  RowSums sums;
};
OrderedRows order_rows(const BoundedValue& rows, const TensorOps& ops) {
  const SumsOfRows sums = sum_listed(rows, ops);
  const Tensor order = ops.apply(named::kArgsort, {sums.values});
  const auto in_order = [&](const Tensor& tensor) {
    return ops.apply(named::kIndexSelect, {tensor, std::int64_t{0}, order});
  };
  return {map_tensors(rows, in_order),
          read({in_order(sums.values), in_order(sums.magnitudes), in_order(sums.bounds), sums.length}, ops)};
}

// The rows of all parts.
BoundedValue join_rows(const std::vector<BoundedValue>& parts, std::size_t dim, const TensorOps& ops) {
  const auto all = [&](const auto& take) {
    std::vector<Value> tensors;
    for (const BoundedValue& part : parts) tensors.emplace_back(list_rows(take(part), dim, ops));
    return ops.apply(named::kCat, {Value::list(std::move(tensors)), std::int64_t{0}});
  };
  BoundedValue made{all([](const BoundedValue& part) { return part.value; }),
                    all([](const BoundedValue& part) { return part.bound; }), std::nullopt};
  const auto has_ideal = [](const BoundedValue& part) { return part.ideal.has_value(); };
  if (std::all_of(parts.begin(), parts.end(), has_ideal))
    made.ideal = all([](const BoundedValue& part) { return *part.ideal; });
  return made;
}

// Rows of a whole and of parts, [rows, elements of each], matched where they lie, in the order of
// their sums: there each row of the parts is near its own of the whole. Its sum says which places
// it may have. All rows are compared with those in their place, then those that are left with the
// ones next to it, and so on as far as rows are found to be moved. How far that is, a row says that
// is compared with all that it may be.
class RowsOnDevice {
 public:
  RowsOnDevice(const BoundedValue& whole, const BoundedValue& rows, const TensorOps& ops)
      : ops_(ops), count_(whole.value.sizes[0]) {
    OrderedRows ordered_whole = order_rows(whole, ops), ordered_rows = order_rows(rows, ops);
    whole_ = std::move(ordered_whole.rows);
    rows_ = std::move(ordered_rows.rows);
    ranges_ = find_ranges(ordered_whole.sums, ordered_rows.sums);
  }

  BoundComparison match() {
    BoundComparison all;
    all.is_within = std::ranges::none_of(ranges_, &Range::is_empty);
    if (!all.is_within) return all;
    Matching matching(static_cast<std::size_t>(count_), [&](std::size_t row, const Matching::Visit& visit) {
      try_places(static_cast<std::int64_t>(row), visit);
    });
    std::vector<std::int64_t> left(static_cast<std::size_t>(count_));
    std::iota(left.begin(), left.end(), std::int64_t{0});
    std::int64_t tried = -1;  // all places so far from a row's own
    const auto try_up_to = [&](std::int64_t distance) {
      while (tried < distance && !left.empty()) {
        ++tried;
        take_at(-tried, left, matching);
        if (tried != 0) take_at(tried, left, matching);
      }
    };
    try_up_to(kNear);
    while (!left.empty()) {
      const auto at = left.begin() + static_cast<std::ptrdiff_t>(left.size() / 2);
      const std::int64_t row = *at;
      left.erase(at);
      all.is_within = matching.add(static_cast<std::size_t>(row));
      if (!all.is_within) return all;
      try_up_to(std::abs(place_in(matching, row) - row));
    }
    std::vector<Pair> matched;  // by way of other rows: what they are like is not known
    for (std::int64_t row = 0; row < count_; ++row) {
      const auto taken = taken_.find(row);
      if (taken != taken_.end() && taken->second.place == place_in(matching, row))
        merge(all, taken->second.comparison);
      else
        matched.push_back({row, place_in(matching, row)});
    }
    for (const BoundComparison& pair : compare(matched)) merge(all, pair);
    return all;
  }

 private:
  static constexpr std::int64_t kNear = 4;

  // Places of the whole that a row may have, by its sum.
  struct Range {
    std::int64_t first = 0, end = 0;
    bool is_empty() const { return first == end; }
    bool holds(std::int64_t place) const { return place >= first && place < end; }
  };
  struct Pair {
    std::int64_t row, place;
  };
  struct Taken {
    std::int64_t place;
    BoundComparison comparison;
  };

  static std::int64_t place_in(const Matching& matching, std::int64_t row) {
    return static_cast<std::int64_t>(matching.place_of(static_cast<std::size_t>(row)));
  }
  const Range& range_of(std::int64_t row) const { return ranges_[static_cast<std::size_t>(row)]; }

  // All places where a sum, or how far it reaches, is no number.
  static std::vector<Range> find_ranges(const RowSums& whole, const RowSums& rows) {
    double most = 0;
    for (const double reach : whole.reach) most = reach <= most ? most : reach < kNoLimit ? reach : kNoLimit;
    const auto begin = whole.sums.begin(), end = whole.sums.end();
    std::vector<Range> ranges;
    for (std::size_t row = 0; row < rows.sums.size(); ++row) {
      const double least = rows.sums[row] - (rows.reach[row] + most),
                   greatest = rows.sums[row] + (rows.reach[row] + most);
      const auto first = std::partition_point(begin, end, [&](double sum) { return sum < least; });
      const auto behind = std::partition_point(first, end, [&](double sum) { return !(sum > greatest); });
      ranges.push_back({first - begin, behind - begin});
    }
    return ranges;
  }

  BoundedValue take(const BoundedValue& from, const std::vector<std::int64_t>& indices) const {
    HostMemory memory;
    const Tensor index = make_tensor(memory, DType::kInt64, {static_cast<std::int64_t>(indices.size())});
    std::ranges::copy(indices, index.data<std::int64_t>());
    const Tensor placed = ops_.memory().place(index);
    return map_tensors(from, [&](const Tensor& tensor) {
      return ops_.apply(named::kIndexSelect, {tensor, std::int64_t{0}, placed});
    });
  }
  std::int64_t width() const { return whole_.value.sizes[1]; }
  std::vector<BoundComparison> compare(const BoundedValue& whole, const BoundedValue& rows) const {
    return Comparison(whole, {rows}, {width(), Limit::kOfBounds}, ops_).find_lots();
  }
  // Pair by pair.
  std::vector<BoundComparison> compare(const std::vector<Pair>& pairs) const {
    std::vector<BoundComparison> found;
    for_each_stretch(
        static_cast<std::int64_t>(pairs.size()), width(), [&](std::int64_t first, std::int64_t count) {
          std::vector<std::int64_t> rows, places;
          for (std::int64_t i = first; i < first + count; ++i) {
            rows.push_back(pairs[static_cast<std::size_t>(i)].row);
            places.push_back(pairs[static_cast<std::size_t>(i)].place);
          }
          std::ranges::move(compare(take(whole_, places), take(rows_, rows)), std::back_inserter(found));
        });
    return found;
  }

  // Gives the rows that are left a place so far behind their own, where it is theirs.
  void take_at(std::int64_t distance, std::vector<std::int64_t>& left, Matching& matching) {
    std::vector<Pair> pairs;
    for (const std::int64_t row : left)
      if (const std::int64_t place = row + distance;
          range_of(row).holds(place) && matching.is_free(static_cast<std::size_t>(place)))
        pairs.push_back({row, place});
    if (pairs.empty()) return;
    const std::vector<BoundComparison> found = compare(pairs);
    std::vector<std::int64_t> taken;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (!found[i].is_within) continue;
      matching.put(static_cast<std::size_t>(pairs[i].row), static_cast<std::size_t>(pairs[i].place));
      taken_[pairs[i].row] = {pairs[i].place, found[i]};
      taken.push_back(pairs[i].row);
    }
    std::vector<std::int64_t> rest;
    std::ranges::set_difference(left, taken, std::back_inserter(rest));
    left = std::move(rest);
  }

  // Of each place in the row's range, whether it is within its bounds.
  const std::vector<bool>& places_of(std::int64_t row) {
    const auto entry = places_.try_emplace(row);
    std::vector<bool>& is_within = entry.first->second;
    if (!entry.second) return is_within;
    const Range& range = range_of(row);
    for_each_stretch(range.end - range.first, width(), [&](std::int64_t first, std::int64_t count) {
      const BoundedValue repeated = map_tensors(rows_, [&](const Tensor& rows) {
        Tensor one = cut_range(rows, 0, row, 1);
        one.sizes[0] = count;
        one.strides[0] = 0;
        return one;
      });
      for (const BoundComparison& found : compare(cut_range(whole_, 0, range.first + first, count), repeated))
        is_within.push_back(found.is_within);
    });
    return is_within;
  }

  // The nearest first.
  void try_places(std::int64_t row, const Matching::Visit& visit) {
    const std::vector<bool>& is_within = places_of(row);
    const Range& range = range_of(row);
    const auto takes = [&](std::int64_t place) {
      return range.holds(place) && is_within[static_cast<std::size_t>(place - range.first)] &&
             visit(static_cast<std::size_t>(place));
    };
    const std::int64_t furthest = std::max(std::abs(range.first - row), std::abs(range.end - row));
    for (std::int64_t by = 0; by <= furthest; ++by)
      if (takes(row - by) || (by != 0 && takes(row + by))) return;
  }

  const TensorOps& ops_;
  BoundedValue whole_, rows_;  // each by sum
  std::int64_t count_;
  std::vector<Range> ranges_;                         // by row
  std::map<std::int64_t, std::vector<bool>> places_;  // of the rows that were asked
  std::unordered_map<std::int64_t, Taken> taken_;     // by row: the first place that it had
};

}  // namespace

BoundComparison compare_by_ops(const BoundedValue& a, const std::vector<BoundedValue>& b,
                               const TensorOps& ops) {
  return Comparison(a, b, {length_of_lot(a.value.sizes), Limit::kOfLots}, ops).find();
}

BoundComparison compare_where_they_lie(const BoundedValue& a, const std::vector<BoundedValue>& b,
                                       const TensorOps& ops) {
  return a.value.storage->is_on_host() ? compare_bounded(a, b) : compare_by_ops(a, b, ops);
}

BoundComparison match_rows_by_ops(const BoundedValue& whole, const std::vector<BoundedValue>& parts,
                                  std::size_t dim, const TensorOps& ops) {
  if (whole.value.numel() == 0) return {};
  const auto rows_of = [&](const Tensor& tensor) { return list_rows(tensor, dim, ops); };
  return RowsOnDevice(map_tensors(whole, rows_of), join_rows(parts, dim, ops), ops).match();
}

BoundComparison match_rows_where_they_lie(const BoundedValue& whole, const std::vector<BoundedValue>& parts,
                                          std::size_t dim, const TensorOps& ops) {
  return whole.value.storage->is_on_host() ? match_rows(whole, parts, dim)
                                           : match_rows_by_ops(whole, parts, dim, ops);
}

RowSums sum_rows(const BoundedValue& value, std::size_t dim, const TensorOps& ops) {
  return read(sum_listed(map_tensors(BoundedValue{value.value, value.bound},
                                     [&](const Tensor& tensor) { return list_rows(tensor, dim, ops); }),
                         ops),
              ops);
}

}  // namespace epweave::replay
