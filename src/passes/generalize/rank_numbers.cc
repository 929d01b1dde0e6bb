#include "passes/generalize/rank_numbers.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/rank_literals.h"

namespace epweave {
namespace {

class NumberRepair {
 public:
  NumberRepair(const RankJob& job, const JobAxes& axes, Repair repair, std::vector<UndecidedNumber> undecided,
               Graph& made, Findings& findings)
      : job_(job),
        axes_(axes),
        repair_(repair),
        undecided_(std::move(undecided)),
        made_(made),
        findings_(findings) {}

  std::vector<std::string> run() {
    const RankLiterals literals = find_rank_literals(made_, job_.ranks[0]);
    for (const RankLiteral& literal : literals.proved) {
      if (!literal.value.is_int() || findings_.is_refused(literal.node)) continue;
      if (const auto number = find_undecided(literal); number != undecided_.end())
        decide(literal, number);
      else
        repair_number(literal);
    }
    for (const UndecidedNumber& number : undecided_)
      findings_.refuse(number.place, number.leaves, number.answer.why, number.answer.next);
    std::vector<std::string> unproved;
    for (const RankLiteral& literal : literals.similar)
      unproved.push_back(fmt::format("%{}: {} looks like {}",
                                     made_.text(made_.step().nodes[literal.node].name),
                                     literal.value.as_int(), print_expression(made_, literal)));
    write();
    return unproved;
  }

 private:
  using Undecided = std::vector<UndecidedNumber>;

  Undecided::iterator find_undecided(const RankLiteral& literal) {
    return std::ranges::find_if(undecided_, [&](const UndecidedNumber& number) {
      return number.place.node == literal.node && number.leaves[0] == literal.value;
    });
  }

  // The proof says which of the axes the number follows.
  void decide(const RankLiteral& literal, Undecided::iterator number) {
    RankLiteral decided = literal;
    std::erase_if(decided.axes, [&](const RankAxis& axis) { return !fits(literal, axis, number->leaves); });
    if (decided.axes.size() != 1 || decided.is_shared) return;
    if (repair_ == Repair::kNo) {
      number->answer.why += "; --repair tells by the lookup";
    } else if (const auto axis = find_axis(decided)) {
      replace(number->place, std::move(decided), *axis);
      undecided_.erase(number);
    }
  }
  bool fits(const RankLiteral& literal, const RankAxis& axis, const std::vector<Arg>& leaves) const {
    for (std::size_t g = 0; g < leaves.size(); ++g)
      if (literal.offset + literal.scale * axis.coordinate(job_.ranks[g]) != leaves[g].as_int()) return false;
    return true;
  }

  // Of a number that is the same on all given ranks.
  void repair_number(RankLiteral literal) {
    const ArgumentPlace place{0, literal.node, "other"};
    const std::vector<Arg> leaves(job_.ranks.size(), literal.value);
    const std::string all = print_expression(made_, literal);
    for (Rank rank : job_.ranks) {
      const std::string here = print_values(literal, rank);
      std::erase_if(literal.axes, [&](const RankAxis& axis) {
        return literal.offset + literal.scale * axis.coordinate(rank) != literal.value.as_int();
      });
      if (literal.axes.empty())
        return findings_.refuse(place, leaves,
                                fmt::format("it must be {}, which is {} on rank {}", all, here, rank));
    }
    const auto axis = find_axis(literal);
    if (!axis)
      return findings_.refuse(place, leaves,
                              fmt::format("it must be {}, of an axis that no mesh of the job has", all));
    if (literal.axes.size() == 1 && !literal.is_shared && repair_ == Repair::kYes)
      return replace(place, std::move(literal), *axis);
    const std::string left = print_expression(made_, literal);
    std::string why = fmt::format("it must be {}; --repair writes that", left);
    if (literal.axes.size() > 1)
      why = fmt::format("it must be {}; the given ranks do not show which", left);
    else if (literal.is_shared)
      why = fmt::format("it must be {} as a bound of a shard, and what it gives serves something else, too",
                        left);
    findings_.refuse(place, leaves, std::move(why), axes_.all()[*axis].next);
  }

  std::optional<std::size_t> find_axis(const RankLiteral& literal) const {
    const RankAxis& first = literal.axes.front();
    for (std::size_t a = 0; a < axes_.all().size(); ++a)
      if (axes_.all()[a].stride == first.stride && axes_.all()[a].extent == first.extent) return a;
    return std::nullopt;
  }

  void replace(const ArgumentPlace& place, RankLiteral literal, std::size_t axis) {
    const Affine function{literal.offset, {{axis, literal.scale}}};
    findings_.explain(place, "coordinate", function.print(axes_));
    repaired_.emplace_back(std::move(literal), function);
  }

  void write() {
    if (repaired_.empty()) return;
    PlaceWriter writer(made_, axes_, job_.size());
    for (const auto& [literal, function] : repaired_) {
      const NodeId value = writer.write(function);
      Node& node = made_.step().nodes[literal.node];
      ArgPool& pool = made_.context->args;
      std::vector<Arg> args(pool[node.args].begin(), pool[node.args].end());
      args[literal.argument] = Arg::node(value);
      node.args = pool.add(args);
    }
    writer.place();
  }

  const RankJob& job_;
  const JobAxes& axes_;
  Repair repair_;
  Undecided undecided_;
  Graph& made_;
  Findings& findings_;
  std::vector<std::pair<RankLiteral, Affine>> repaired_;
};

}  // namespace

std::vector<std::string> repair_numbers(const RankJob& job, const JobAxes& axes, Repair repair,
                                        std::vector<UndecidedNumber> undecided, Graph& made,
                                        Findings& findings) {
  return NumberRepair(job, axes, repair, std::move(undecided), made, findings).run();
}

}  // namespace epweave
