#include "replay/check/row_matching.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "replay/run/watch_values.h"

namespace epweave::replay {
namespace {

struct Row {
  std::vector<double> numbers, bounds, ideals;
  double sum = 0, bound = 0;  // of all elements
};

std::vector<Row> list_rows(const BoundedValue& value, std::size_t dim) {
  std::vector<Row> rows(static_cast<std::size_t>(value.value.sizes[dim]));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const Buffer<double> numbers = read_numbers(cut_range(value.value, dim, at, 1)),
                         bounds = read_numbers(cut_range(value.bound, dim, at, 1));
    rows[i].numbers.assign(numbers.begin(), numbers.end());
    rows[i].bounds.assign(bounds.begin(), bounds.end());
    rows[i].ideals.assign(numbers.size(), std::numeric_limits<double>::quiet_NaN());
    if (value.ideal) {
      const Buffer<double> ideals = read_numbers(cut_range(*value.ideal, dim, at, 1));
      rows[i].ideals.assign(ideals.begin(), ideals.end());
    }
    for (std::size_t j = 0; j < numbers.size(); ++j) {
      rows[i].sum += numbers[j];
      rows[i].bound += bounds[j] + std::abs(numbers[j]) * 0x1p-40;
    }
  }
  return rows;
}

BoundComparison compare(const Row& a, const Row& b) {
  BoundComparison result;
  for (std::size_t j = 0; j < a.numbers.size() && result.is_within; ++j)
    add_element(result, static_cast<std::int64_t>(j),
                {a.numbers[j], b.numbers[j], std::abs(b.numbers[j]), a.bounds[j] + b.bounds[j], a.ideals[j],
                 b.ideals[j]});
  return result;
}

// A matching of two sets of rows that is grown by a row at a time, along the shortest chain of rows
// that give way to each other (Kuhn). A row tries those first whose elements' sum is nearest to its
// own: errors are far smaller than their bounds, so that this is nearly always the right one.
class Matching {
 public:
  Matching(std::vector<Row> whole, std::vector<Row> rows)
      : whole_(std::move(whole)),
        rows_(std::move(rows)),
        owner_(whole_.size(), kNone),
        place_of_(rows_.size(), kNone),
        reached_from_(whole_.size(), kNone) {
    std::stable_sort(whole_.begin(), whole_.end(), [](const Row& x, const Row& y) { return x.sum < y.sum; });
    for (const Row& row : whole_) most_bound_ = std::max(most_bound_, row.bound);
  }

  BoundComparison compare_all() {
    BoundComparison all;
    for (std::size_t row = 0; row < rows_.size(); ++row)
      if (!add(row)) {
        all.is_within = false;
        return all;
      }
    for (std::size_t i = 0; i < whole_.size(); ++i)
      if (owner_[i] != kNone) merge(all, compare(whole_[i], rows_[owner_[i]]));
    return all;
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  // Calls visit(place) for the rows of the whole whose sums are near enough, the nearest first,
  // until it says true.
  template <class Visit>
  bool try_near(const Row& row, const Visit& visit) const {
    const double reach = (most_bound_ + row.bound) * (1 + kBoundSlack);
    const auto from = std::lower_bound(whole_.begin(), whole_.end(), row.sum,
                                       [](const Row& r, double sum) { return r.sum < sum; });
    auto above = static_cast<std::size_t>(from - whole_.begin());
    auto below = above;  // one behind the next
    constexpr double kNever = std::numeric_limits<double>::infinity();
    while (above < whole_.size() || below > 0) {
      const double up = above < whole_.size() ? whole_[above].sum - row.sum : kNever;
      const double down = below > 0 ? row.sum - whole_[below - 1].sum : kNever;
      if (!(std::min(up, down) <= reach)) return false;  // a NaN is near nothing
      if (visit(up <= down ? above++ : --below)) return true;
    }
    return false;
  }

  // Whether the row, and all that were added before, have a row of the whole each.
  bool add(std::size_t row) {
    std::vector<std::size_t> pending = {row};
    std::vector<std::size_t> reached;
    std::size_t free = kNone;
    for (std::size_t next = 0; next < pending.size() && free == kNone; ++next) {
      const std::size_t from = pending[next];
      try_near(rows_[from], [&](std::size_t place) {
        if (reached_from_[place] != kNone || !compare(whole_[place], rows_[from]).is_within) return false;
        reached_from_[place] = from;
        reached.push_back(place);
        if (owner_[place] == kNone) {
          free = place;
        } else {
          pending.push_back(owner_[place]);
        }
        return free != kNone;
      });
    }
    if (free != kNone) give_way(row, free);
    for (std::size_t place : reached) reached_from_[place] = kNone;
    return free != kNone;
  }

  // The last row of the chain takes the free place, the one before it the place that this one had,
  // up to `row`.
  void give_way(std::size_t row, std::size_t free) {
    std::size_t taker = kNone;
    for (std::size_t place = free; taker != row;) {
      taker = reached_from_[place];
      owner_[place] = taker;
      place = std::exchange(place_of_[taker], place);
    }
  }

  std::vector<Row> whole_, rows_;
  std::vector<std::size_t> owner_;         // of a row of the whole: the row that it is matched with
  std::vector<std::size_t> place_of_;      // of a row: that row of the whole
  std::vector<std::size_t> reached_from_;  // of a row of the whole, in add(): the row that tried it
  double most_bound_ = 0;
};

}  // namespace

BoundComparison match_rows(const BoundedValue& whole, const std::vector<BoundedValue>& parts,
                           std::size_t dim) {
  std::vector<Row> rows;
  for (const BoundedValue& part : parts) {
    std::vector<Row> of_part = list_rows(part, dim);
    std::move(of_part.begin(), of_part.end(), std::back_inserter(rows));
  }
  return Matching(list_rows(whole, dim), std::move(rows)).compare_all();
}

}  // namespace epweave::replay
