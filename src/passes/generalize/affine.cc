#include "passes/generalize/affine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace epweave {
namespace {

using Numbers = std::vector<std::int64_t>;

// Sets of as many axes are tried as long as they are no more.
constexpr std::size_t kMostSets = 20'000;

Count minus(Count a, Count b) {
  return plus(a, times(b, -1));
}
// None if it is not whole, too.
Count quotient(Count a, std::int64_t b) {
  if (b == -1) return times(a, b);
  if (!a || b == 0 || *a % b != 0) return std::nullopt;
  return *a / b;
}

// Whether numbers at these places, but for the one left out, tell an affine function: the vectors
// from one of them to the others span all axes. Found by elimination; places are small integers.
bool tell_function(const std::vector<Numbers>& places, std::size_t left_out) {
  const std::size_t axes = places[0].size(), first = left_out == 0 ? 1 : 0;
  std::vector<std::vector<double>> rows;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i == left_out || i == first) continue;
    std::vector<double>& row = rows.emplace_back();
    for (std::size_t k = 0; k < axes; ++k)
      row.push_back(static_cast<double>(places[i][k] - places[first][k]));
  }
  constexpr double kZero = 1e-6;
  for (std::size_t k = 0; k < axes; ++k) {
    const auto size = [&](const std::vector<double>& row) { return std::abs(row[k]); };
    const auto from = rows.begin() + static_cast<std::ptrdiff_t>(std::min(k, rows.size()));
    const auto pivot = std::ranges::max_element(from, rows.end(), {}, size);
    if (pivot == rows.end() || size(*pivot) < kZero) return false;
    std::iter_swap(from, pivot);
    for (auto row = from + 1; row != rows.end(); ++row) {
      const double share = (*row)[k] / (*from)[k];
      for (std::size_t j = k; j < axes; ++j) (*row)[j] -= share * (*from)[j];
    }
  }
  return true;
}

class AffineSolver {
 public:
  AffineSolver(const RankJob& job, const JobAxes& axes, const Numbers& values)
      : job_(job), axes_(axes), values_(values) {}

  std::vector<Affine> fit_one() const {
    std::vector<Affine> found;
    for (std::size_t a = 0; a < axes_.all().size(); ++a) {
      const Numbers c = coordinates(a);
      const auto other = std::ranges::find_if(c, [&](std::int64_t x) { return x != c[0]; });
      if (other == c.end()) continue;
      const Count change = minus(values_[static_cast<std::size_t>(other - c.begin())], values_[0]);
      const Count scale = quotient(change, *other - c[0]);
      const Count offset = minus(values_[0], times(scale, c[0]));
      if (!offset || *scale == 0) continue;
      const Affine function{*offset, {{a, *scale}}};
      if (fits(function)) found.push_back(function);
    }
    return found;
  }

  // Two axes whose coordinates the given ranks tell apart.
  std::vector<Affine> fit_two() const {
    std::vector<Affine> found;
    for (std::size_t a = 0; a < axes_.all().size(); ++a)
      for (std::size_t b = a + 1; b < axes_.all().size(); ++b)
        if (const auto function = fit_pair(a, b)) found.push_back(*function);
    return found;
  }

  // More axes. As many places as there are unknowns fit whatever their numbers are, and so does a
  // place without which an axis is not told from the others: each number must follow from the rest.
  std::vector<Affine> fit_many(std::size_t count) {
    std::vector<Affine> found;
    std::vector<std::size_t> chosen;
    const auto choose = [&](const auto& self, std::size_t from) -> void {
      if (chosen.size() == count) {
        if (const auto function = fit_axes(chosen)) found.push_back(*function);
        return;
      }
      for (std::size_t a = from; a < axes_.all().size(); ++a) {
        chosen.push_back(a);
        self(self, a + 1);
        chosen.pop_back();
      }
    };
    choose(choose, 0);
    return found;
  }

  // Where they do not.
  const std::optional<AffineAnswer>& too_few() const { return too_few_; }

 private:
  // The scale of each axis from two ranks that differ along it alone.
  std::optional<Affine> fit_axes(const std::vector<std::size_t>& chosen) {
    std::map<Numbers, std::int64_t> value_at;  // by place along these axes
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const auto [at, is_new] = value_at.emplace(place(chosen, job_.ranks[i]), values_[i]);
      if (!is_new && at->second != values_[i]) return std::nullopt;
    }
    Affine function{values_[0], {}};
    for (std::size_t k = 0; k < chosen.size(); ++k) {
      const Count scale = find_scale(value_at, k);
      const std::int64_t here = axes_.all()[chosen[k]].coordinate(job_.ranks[0]);
      const Count offset = minus(function.offset, times(scale, here));
      if (!offset || *scale == 0) return std::nullopt;
      function.offset = *offset;
      function.terms.emplace_back(chosen[k], *scale);
    }
    if (!fits(function)) return std::nullopt;
    std::vector<Numbers> places;
    for (const auto& [at, value] : value_at) places.push_back(at);
    bool is_told = true;  // by whichever places but one
    for (std::size_t i = 0; i < places.size() && is_told; ++i) is_told = tell_function(places, i);
    if (is_told) return function;
    if (!too_few_) too_few_ = ask_for_more(chosen, value_at, function);
    return std::nullopt;
  }
  AffineAnswer ask_for_more(const std::vector<std::size_t>& chosen,
                            const std::map<Numbers, std::int64_t>& value_at, const Affine& function) const {
    AffineAnswer answer{{},
                        fmt::format("{} fits, as some function of {} axes would whatever the numbers are",
                                    function.print(axes_), chosen.size()),
                        {}};
    for (Rank rank = job_.size(); rank-- > 0 && !answer.next;)
      if (!value_at.contains(place(chosen, rank))) answer.next = rank;
    return answer;
  }
  static Count find_scale(const std::map<Numbers, std::int64_t>& value_at, std::size_t k) {
    for (const auto& [at, value] : value_at)
      for (const auto& [other, other_value] : value_at) {
        Numbers moved = other;
        moved[k] = at[k];
        if (moved == at && other[k] != at[k]) return quotient(minus(other_value, value), other[k] - at[k]);
      }
    return std::nullopt;
  }
  Numbers place(const std::vector<std::size_t>& chosen, Rank rank) const {
    Numbers numbers;
    for (std::size_t a : chosen) numbers.push_back(axes_.all()[a].coordinate(rank));
    return numbers;
  }

  Numbers coordinates(std::size_t axis) const {
    Numbers numbers;
    for (Rank rank : job_.ranks) numbers.push_back(axes_.all()[axis].coordinate(rank));
    return numbers;
  }

  bool fits(const Affine& function) const {
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (function.at(axes_, job_.ranks[i]) != Count(values_[i])) return false;
    for (Rank rank = 0; rank < job_.size(); ++rank)
      if (!function.at(axes_, rank)) return false;
    return true;
  }

  // From three ranks by Cramer's rule.
  std::optional<Affine> fit_pair(std::size_t a, std::size_t b) const {
    const Numbers ca = coordinates(a), cb = coordinates(b);
    for (std::size_t i = 1; i < values_.size(); ++i) {
      for (std::size_t j = i + 1; j < values_.size(); ++j) {
        const std::int64_t a1 = ca[i] - ca[0], b1 = cb[i] - cb[0];
        const std::int64_t a2 = ca[j] - ca[0], b2 = cb[j] - cb[0];
        const Count v1 = minus(values_[i], values_[0]), v2 = minus(values_[j], values_[0]);
        const std::int64_t det = a1 * b2 - a2 * b1;
        if (det == 0) continue;
        const Count x = quotient(minus(times(v1, b2), times(v2, b1)), det);
        const Count y = quotient(minus(times(v2, a1), times(v1, a2)), det);
        const Count offset = minus(minus(values_[0], times(x, ca[0])), times(y, cb[0]));
        if (!offset || *x == 0 || *y == 0) return std::nullopt;
        Affine function{*offset, {{a, *x}, {b, *y}}};
        if (fits(function)) return function;
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  const RankJob& job_;
  const JobAxes& axes_;
  const Numbers& values_;
  std::optional<AffineAnswer> too_few_;
};

}  // namespace

Count Affine::at(const JobAxes& axes, Rank rank) const {
  Count value = 0;
  for (const auto& [axis, scale] : terms)
    value = plus(value, times(scale, axes.all()[axis].coordinate(rank)));
  return plus(value, offset);
}

std::string Affine::print(const JobAxes& axes) const {
  std::string text = offset != 0 ? std::to_string(offset) : "";
  for (const auto& [axis, scale] : terms)
    text += fmt::format("{}{}c_{}", text.empty() ? "" : " + ", scale == 1 ? "" : fmt::format("{} * ", scale),
                        axes.all()[axis].name);
  return text;
}

AffineAnswer solve_affine(const RankJob& job, const JobAxes& axes, const std::vector<std::int64_t>& values) {
  AffineSolver solver(job, axes, values);
  std::vector<Affine> fits = solver.fit_one();
  if (fits.empty()) fits = solver.fit_two();
  const std::size_t all = axes.all().size();
  std::size_t sets = all * (all - std::min<std::size_t>(all, 1)) / 2;
  for (std::size_t count = 3; fits.empty() && count <= all && count < job.ranks.size(); ++count) {
    sets = sets * (all + 1 - count) / count;
    if (sets > kMostSets) break;
    fits = solver.fit_many(count);
  }
  if (fits.empty())
    return solver.too_few().value_or(
        AffineAnswer{{}, "no affine function of the coordinates has these values", {}});
  for (std::size_t i = 1; i < fits.size(); ++i)
    for (Rank rank = 0; rank < job.size(); ++rank)
      if (fits[0].at(axes, rank) != fits[i].at(axes, rank))
        return {
            {},
            fmt::format("the given ranks cannot tell {} from {}", fits[0].print(axes), fits[i].print(axes)),
            rank};
  return {fits[0], {}, {}};
}

PlaceWriter::PlaceWriter(Graph& graph, const JobAxes& axes, std::uint32_t world_size)
    : axes_(axes), coordinates_(graph, world_size, "generalize") {}

NodeId PlaceWriter::write(const Affine& function) {
  if (const auto known = functions_.find(function); known != functions_.end()) return known->second;
  NodeId value;
  for (const auto& [axis, scale] : function.terms) {
    NodeId term;
    if (function.terms.size() > 1 || function.offset != 0) {
      term = write({0, {{axis, scale}}});
    } else {
      const GeneralizeAxis& of = axes_.all()[axis];
      term = coordinates_.coordinate(of.name, {of.stride, of.extent});
      if (scale != 1) term = coordinates_.number("operator.mul", term, Arg::integer(scale));
    }
    value = value ? coordinates_.number("operator.add", value, Arg::node(term)) : term;
  }
  if (function.offset != 0) value = coordinates_.number("operator.add", value, Arg::integer(function.offset));
  return functions_[function] = value;
}

}  // namespace epweave
