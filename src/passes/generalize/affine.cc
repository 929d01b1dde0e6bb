#include "passes/generalize/affine.h"

#include <fmt/format.h>

#include <algorithm>

namespace epweave {
namespace {

using Numbers = std::vector<std::int64_t>;

Count minus(Count a, Count b) {
  return plus(a, times(b, -1));
}
// None if it is not whole, too.
Count quotient(Count a, std::int64_t b) {
  if (b == -1) return times(a, b);
  if (!a || b == 0 || *a % b != 0) return std::nullopt;
  return *a / b;
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

 private:
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
  const AffineSolver solver(job, axes, values);
  std::vector<Affine> fits = solver.fit_one();
  if (fits.empty()) fits = solver.fit_two();
  if (fits.empty()) return {{}, "no affine function of the coordinates has these values", {}};
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
