#include "compare/ranks/rank_baked.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace epweave {

std::string print_place(const Graph& graph, NodeId id) {
  const Site site = site_of(graph, graph.step().nodes[id]);
  std::string place = site.op;
  for (const std::string& part : {site.module, site.source})
    if (!part.empty()) place += ", " + part;
  return fmt::format("({})", place);
}

namespace {

RankViolation violation(const Graph& graph, const RankLiteral& literal, std::uint32_t rank, std::string why) {
  RankViolation made{.invariant = "ranks-baked", .message = std::move(why), .ranks = {rank}};
  made.nodes = {std::string(graph.text(graph.step().nodes[literal.node].name))};
  made.expression = print_expression(graph, literal);
  made.argument = literal.argument;
  if (literal.value.is_int()) made.value = literal.value.as_int();
  return made;
}

}  // namespace

std::vector<RankViolation> find_baked(const Graph& graph, const RankLiterals& literals, std::uint32_t rank) {
  std::vector<RankViolation> found;
  for (const RankLiteral& literal : literals.proved)
    if (literal.value.is_int())
      found.push_back(
          violation(graph, literal, rank,
                    fmt::format("{} is one rank's; it must be {} {}", literal.value.as_int(),
                                print_expression(graph, literal), print_place(graph, literal.node))));
  return found;
}

std::vector<RankViolation> find_foreign(const Graph& graph, const RankLiterals& literals,
                                        std::uint32_t rank) {
  std::vector<RankViolation> found;
  for (const RankLiteral& literal : literals.proved)
    if (literal.value.is_int() && !literal.values_at(rank).contains(literal.value.as_int()))
      found.push_back(violation(
          graph, literal, rank,
          literal.is_missing ? fmt::format("takes ids that are not shifted; bounds say by {} = {} {}",
                                           print_expression(graph, literal), print_values(literal, rank),
                                           print_place(graph, literal.node))
                             : fmt::format("{} is not this rank's; it must be {} = {} {}",
                                           literal.value.as_int(), print_expression(graph, literal),
                                           print_values(literal, rank), print_place(graph, literal.node))));
  return found;
}

void NumbersOfRanks::add(const Graph& graph, const RankLiterals& literals, std::uint32_t rank) {
  OfRank& made = ranks_.emplace_back(OfRank{rank, {}});
  for (const RankLiteral& literal : literals.proved) {
    Number number{.node = std::string(graph.text(graph.step().nodes[literal.node].name)),
                  .place = print_place(graph, literal.node),
                  .expression = print_expression(graph, literal),
                  .argument = literal.argument,
                  .lookup = literal.lookup};
    if (literal.value.is_int()) number.value = literal.value.as_int();
    for (const RankAxis& axis : literal.axes)
      number.functions.push_back({axis, std::string(graph.text(axis.name)), literal.offset, literal.scale});
    made.numbers.push_back(std::move(number));
  }
}

bool NumbersOfRanks::are_one_program() const {
  return std::ranges::all_of(ranks_, [&](const OfRank& other) {
    return std::ranges::equal(other.numbers, ranks_.front().numbers, [](const Number& x, const Number& y) {
      return x.place == y.place && x.argument == y.argument && x.lookup == y.lookup &&
             x.value.has_value() == y.value.has_value();
    });
  });
}

bool NumbersOfRanks::is_own(std::size_t i) const {
  return std::ranges::all_of(ranks_, [&](const OfRank& of) {
    const Number& number = of.numbers[i];
    return number.value && std::ranges::any_of(number.functions, [&](const Function& function) {
             return function.at(of.rank) == *number.value;
           });
  });
}

void NumbersOfRanks::Number::keep_axes_of(const Number& other) {
  std::erase_if(functions, [&](const Function& function) {
    return std::ranges::none_of(other.functions, [&](const Function& x) { return x.is_along(function); });
  });
}

std::string NumbersOfRanks::Number::print_axes() const {
  std::vector<std::string> names;
  for (const Function& function : functions) names.push_back(function.axis_name);
  return fmt::format("{}", fmt::join(names, " or "));
}

// Which bound of a shard a number is may be read otherwise on each rank, where nothing says it.
NumbersOfRanks::Number NumbersOfRanks::fit_all(std::size_t i) const {
  Number number = ranks_.front().numbers[i];
  for (const OfRank& of : ranks_)
    for (const Function& function : of.numbers[i].functions)
      if (std::ranges::find(number.functions, function) == number.functions.end())
        number.functions.push_back(function);
  std::erase_if(number.functions, [&](const Function& function) {
    return std::ranges::any_of(
        ranks_, [&](const OfRank& of) { return function.at(of.rank) != *of.numbers[i].value; });
  });
  return number;
}

RankViolation NumbersOfRanks::violation(std::size_t i, std::string message) const {
  const Number& first = ranks_.front().numbers[i];
  RankViolation made{.invariant = "ranks-baked", .message = std::move(message)};
  for (const OfRank& of : ranks_) {
    made.ranks.push_back(of.rank);
    made.nodes.push_back(of.numbers[i].node);
  }
  made.argument = first.argument;
  made.value = first.value.value_or(0);
  made.expression = first.expression;
  return made;
}

std::vector<RankViolation> NumbersOfRanks::find_contradictions() const {
  std::vector<RankViolation> found;
  if (ranks_.size() < 2 || !are_one_program()) return found;
  std::map<std::uint32_t, Number> of_lookup;  // by what axes all of its numbers so far are right
  for (std::size_t i = 0; i < ranks_.front().numbers.size(); ++i) {
    if (!is_own(i)) continue;
    const Number number = fit_all(i);
    if (number.functions.empty()) {
      std::vector<std::int64_t> values;
      for (const OfRank& of : ranks_) values.push_back(*of.numbers[i].value);
      found.push_back(violation(i, fmt::format("{} on these ranks follow no one axis; they must be {} {}",
                                               fmt::join(values, ", "), number.expression, number.place)));
      continue;
    }
    const auto [known, is_new] = of_lookup.emplace(number.lookup, number);
    if (is_new) continue;
    Number common = known->second;
    common.keep_axes_of(number);
    if (common.functions.empty())
      found.push_back(violation(
          i, fmt::format("follows {}, and %{} of the same lookup follows {} {}", number.print_axes(),
                         known->second.node, known->second.print_axes(), number.place)));
    else
      known->second = std::move(common);
  }
  return found;
}

std::string print_similar(const Graph& graph, const RankLiteral& literal) {
  return fmt::format("%{} {}: {} looks like {}, which is not proved",
                     graph.text(graph.step().nodes[literal.node].name), print_place(graph, literal.node),
                     literal.value.as_int(), print_expression(graph, literal));
}

}  // namespace epweave
