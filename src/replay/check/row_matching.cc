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

// Rows of the whole that a row of the parts may be. Those whose elements' sum is nearest to its own
// are tried first: errors are far smaller than their bounds, so that this is nearly always the
// right one.
class Candidates {
 public:
  explicit Candidates(std::vector<Row> whole) : whole_(std::move(whole)) {
    std::stable_sort(whole_.begin(), whole_.end(), [](const Row& x, const Row& y) { return x.sum < y.sum; });
    for (const Row& row : whole_) most_bound_ = std::max(most_bound_, row.bound);
  }
  const Row& operator[](std::size_t place) const { return whole_[place]; }

  void try_places(const Row& row, const Matching::Visit& visit) const {
    const double reach = (most_bound_ + row.bound) * (1 + kBoundSlack);
    const auto from = std::lower_bound(whole_.begin(), whole_.end(), row.sum,
                                       [](const Row& r, double sum) { return r.sum < sum; });
    auto above = static_cast<std::size_t>(from - whole_.begin());
    auto below = above;  // one behind the next
    constexpr double kNever = std::numeric_limits<double>::infinity();
    while (above < whole_.size() || below > 0) {
      const double up = above < whole_.size() ? whole_[above].sum - row.sum : kNever;
      const double down = below > 0 ? row.sum - whole_[below - 1].sum : kNever;
      if (!(std::min(up, down) <= reach)) return;  // a NaN is near nothing
      const std::size_t place = up <= down ? above++ : --below;
      if (compare(whole_[place], row).is_within && visit(place)) return;
    }
  }

 private:
  std::vector<Row> whole_;  // by sum
  double most_bound_ = 0;
};

}  // namespace

Matching::Matching(std::size_t rows, TryPlaces try_places)
    : try_places_(std::move(try_places)),
      place_of_(rows, kNone),
      owner_(rows, kNone),
      reached_from_(rows, kNone) {}

void Matching::put(std::size_t row, std::size_t place) {
  EPWEAVE_DCHECK(owner_[place] == kNone && place_of_[row] == kNone);
  owner_[place] = row;
  place_of_[row] = place;
}

bool Matching::add(std::size_t row) {
  std::vector<std::size_t> pending = {row};
  std::vector<std::size_t> reached;
  std::size_t free = kNone;
  for (std::size_t next = 0; next < pending.size() && free == kNone; ++next) {
    const std::size_t from = pending[next];
    try_places_(from, [&](std::size_t place) {
      if (reached_from_[place] != kNone) return false;
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

// The last row of the chain takes the free place, the one before it the place that this one had, up
// to `row`.
void Matching::give_way(std::size_t row, std::size_t free) {
  std::size_t taker = kNone;
  for (std::size_t place = free; taker != row;) {
    taker = reached_from_[place];
    owner_[place] = taker;
    place = std::exchange(place_of_[taker], place);
  }
}

BoundComparison match_rows(const BoundedValue& whole, const std::vector<BoundedValue>& parts,
                           std::size_t dim) {
  std::vector<Row> rows;
  for (const BoundedValue& part : parts) {
    std::vector<Row> of_part = list_rows(part, dim);
    std::move(of_part.begin(), of_part.end(), std::back_inserter(rows));
  }
  const Candidates candidates(list_rows(whole, dim));
  Matching matching(rows.size(), [&](std::size_t row, const Matching::Visit& visit) {
    candidates.try_places(rows[row], visit);
  });
  BoundComparison all;
  for (std::size_t row = 0; row < rows.size() && all.is_within; ++row) all.is_within = matching.add(row);
  for (std::size_t row = 0; row < rows.size() && all.is_within; ++row)
    merge(all, compare(candidates[matching.place_of(row)], rows[row]));
  return all;
}

}  // namespace epweave::replay
