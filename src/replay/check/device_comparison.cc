#include "replay/check/device_comparison.h"

#include <algorithm>
#include <limits>
#include <string_view>
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

// How far elements may be off before rounding: by what their lots show (find_seen_errors), or by a
// share of their bounds alone.
enum class Limit : std::uint8_t { kOfLots, kOfBounds };

class Comparison {
 public:
  Comparison(const BoundedValue& a, const std::vector<BoundedValue>& b, Limit limit, const TensorOps& ops)
      : ops_(ops),
        a_(flatten(a, ops)),
        roundoff_(unit_roundoff(a.value.dtype)),
        count_(a.value.numel()),
        length_(length_of_lot(a.value.sizes)),
        limit_(limit) {
    for (const BoundedValue& part : b) {
      EPWEAVE_CHECK(part.value.sizes == a.value.sizes);
      b_.push_back(flatten(part, ops));
    }
  }

  BoundComparison find() {
    BoundComparison result;
    if (count_ == 0) return result;
    const std::int64_t lots = (count_ + length_ - 1) / length_;
    seen_ = ops_.filled(DType::kFloat64, {lots}, kNoLimit);
    if (limit_ == Limit::kOfLots) find_seen();
    found_ = make_tensor(ops_.memory(), DType::kFloat64, {kColumns, lots});
    for_each_block([&](const Block& block) { compare(block); });
    const Tensor all = ops_.on_host(ops_.apply(named::kAmax, {found_, Value::list({std::int64_t{1}})}));
    const double* most = all.data<double>();
    result.is_bounded = most[kOpen] == 0;
    result.has_ideals = most[kUnknownIdeal] == 0;
    result.largest_share = most[kShare];
    result.largest_unrounded = most[kUnrounded];
    if (most[kOutside] != 0) locate(result);
    return result;
  }

 private:
  // What is found of each lot.
  enum Column : std::int64_t { kOpen, kUnknownIdeal, kShare, kUnrounded, kOutside, kColumns };

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
      most = larger(most, times(apply(named::kAbs, ideal), roundoff_));
      ops_.copy(most_of_rows(larger(most, zero)), slots(seen_, block));
    });
    const Tensor of_all = times(apply(named::kAmax, seen_, Value::list({})), kShareOfOtherRows);
    seen_ = larger(seen_, of_all.view({1}, {1}, of_all.offset));
    const Tensor is_nothing = apply(named::kEqNumber, seen_, 0.0);
    seen_ = ops_.apply(named::kWhere, {is_nothing, ops_.filled(DType::kFloat64, {1}, kNoLimit), seen_});
  }

  // add_element() of each element.
  void compare(const Block& block) const {
    const Tensor whole = wide(a_.value, block), total = sum_of_values(block);
    Tensor bound = wide(a_.bound, block);
    for (const BoundedValue& part : b_) bound = add(bound, wide(part.bound, block));
    const Tensor size =
        sum([&](const BoundedValue& part) { return apply(named::kAbs, wide(part.value, block)); });
    const Tensor difference = distance(whole, total);
    const Tensor allowed = add(times(bound, 1 + kBoundSlack), times(size, kSummingError));
    const Tensor is_bounded = apply(named::kLtNumber, allowed, kNoLimit);
    const Tensor unrounded = distance(ideal_of(a_, block), sum_of_ideals(block));
    const Tensor seen =
        slots(seen_, block).view({block.lots, 1}, {1, 1}, seen_.offset + block.first / length_);
    const Tensor limit = apply(named::kMinimum, times(allowed, kUnroundedShare), times(seen, kSeenShare));
    const Tensor is_far = apply(named::kLogicalNot, apply(named::kLe, difference, allowed));
    const Tensor is_other = apply(named::kGt, unrounded, limit);
    const Tensor zero = ops_.filled(DType::kFloat64, {1, 1}, 0);
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
  void locate(BoundComparison& result) const {
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
    merge(result, found);
  }

  const TensorOps& ops_;
  BoundedValue a_;
  std::vector<BoundedValue> b_;
  double roundoff_;
  std::int64_t count_, length_;
  Limit limit_;
  Tensor seen_;   // of each lot
  Tensor found_;  // [kColumns, lots]
};

// The rows of a dimension in the order of their sums.
BoundedValue order_rows(const BoundedValue& value, std::size_t dim, const TensorOps& ops) {
  std::vector<Value> others;
  for (std::size_t d = 0; d < value.value.rank(); ++d)
    if (d != dim) others.emplace_back(static_cast<std::int64_t>(d));
  Tensor sums = ops.cast(value.value, DType::kFloat64);
  if (!others.empty()) sums = ops.apply(named::kSum, {sums, Value::list(std::move(others))});
  const Tensor order = ops.apply(named::kArgsort, {sums});
  const auto take = [&](const Tensor& tensor) {
    return ops.apply(named::kIndexSelect, {tensor, static_cast<std::int64_t>(dim), order});
  };
  BoundedValue made{take(value.value), take(value.bound), std::nullopt};
  if (value.ideal) made.ideal = take(*value.ideal);
  return made;
}

BoundedValue join(const std::vector<BoundedValue>& parts, std::size_t dim, const TensorOps& ops) {
  const auto all = [&](const auto& take) {
    std::vector<Value> tensors;
    for (const BoundedValue& part : parts) tensors.emplace_back(take(part));
    return ops.apply(named::kCat, {Value::list(std::move(tensors)), static_cast<std::int64_t>(dim)});
  };
  BoundedValue made{all([](const BoundedValue& part) { return part.value; }),
                    all([](const BoundedValue& part) { return part.bound; }), std::nullopt};
  const auto has_ideal = [](const BoundedValue& part) { return part.ideal.has_value(); };
  if (std::all_of(parts.begin(), parts.end(), has_ideal))
    made.ideal = all([](const BoundedValue& part) { return *part.ideal; });
  return made;
}

}  // namespace

BoundComparison compare_by_ops(const BoundedValue& a, const std::vector<BoundedValue>& b,
                               const TensorOps& ops) {
  return Comparison(a, b, Limit::kOfLots, ops).find();
}

BoundComparison compare_where_they_lie(const BoundedValue& a, const std::vector<BoundedValue>& b,
                                       const TensorOps& ops) {
  return a.value.storage->is_on_host() ? compare_bounded(a, b) : compare_by_ops(a, b, ops);
}

BoundComparison match_rows_where_they_lie(const BoundedValue& whole, const std::vector<BoundedValue>& parts,
                                          std::size_t dim, const TensorOps& ops) {
  if (whole.value.storage->is_on_host()) return match_rows(whole, parts, dim);
  const BoundComparison in_order =
      Comparison(order_rows(whole, dim, ops), {order_rows(join(parts, dim, ops), dim, ops)}, Limit::kOfBounds,
                 ops)
          .find();
  if (in_order.is_within) return in_order;
  std::vector<BoundedValue> copies;
  for (const BoundedValue& part : parts) copies.push_back(on_host(part, ops));
  return match_rows(on_host(whole, ops), copies, dim);
}

}  // namespace epweave::replay
