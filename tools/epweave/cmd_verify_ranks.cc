#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "compare/ranks/rank_groups.h"
#include "compare/ranks/verify_ranks.h"

namespace epweave::cli {
namespace {

// Ranks as the files say, or by position where no file says its own.
std::vector<RankProgram> read_programs(const std::vector<InputOptions>& inputs, Console& console) {
  std::vector<RankProgram> programs;
  std::map<std::uint32_t, std::string> files;  // of each rank
  for (const InputOptions& input : inputs) {
    console.progress(fmt::format("reading {}", display_name(input)));
    programs.push_back(list_rank_program(read_sound_input(input, nullptr, Soundness::kStructure)));
    if (!programs.back().rank) continue;
    const auto [other, is_new] = files.try_emplace(*programs.back().rank, display_name(input));
    if (!is_new)
      throw InputError(
          fmt::format("{} and {} are both of rank {}; give one graph for each rank, or one alone "
                      "that all ranks run",
                      other->second, display_name(input), other->first));
  }
  if (programs.size() == 1) return spread_over_ranks(programs.front());
  if (files.empty()) {
    console.warn("the files do not say their ranks: the first is taken for rank 0, and so on");
    for (std::size_t i = 0; i < programs.size(); ++i) programs[i].rank = static_cast<std::uint32_t>(i);
  } else if (files.size() < programs.size()) {
    throw InputError(fmt::format("{} says its rank (`info rank`), and others do not", files.begin()->second));
  }
  return programs;
}

Json stuck_report(const StuckRank& stuck) {
  return {{"rank", stuck.rank},   {"at", stuck.at},         {"launch", stuck.launch},
          {"group", stuck.group}, {"misses", stuck.misses}, {"never", stuck.never}};
}

Json ranks_report(const RanksReport& report) {
  Json violations = Json::array();
  for (const RankViolation& violation : report.violations) {
    Json cycle = Json::array();
    for (const StuckRank& stuck : violation.cycle) cycle.push_back(stuck_report(stuck));
    violations.push_back({{"invariant", violation.invariant},
                          {"message", violation.message},
                          {"ranks", violation.ranks},
                          {"nodes", violation.nodes},
                          {"cycle", std::move(cycle)}});
  }
  return {{"ok", report.violations.empty()}, {"ranks", report.ranks},
          {"groups", report.groups},         {"collectives", report.collectives},
          {"as_traced", report.as_traced},   {"not_compared", report.not_compared},
          {"not_given", report.not_given},   {"violations", std::move(violations)}};
}

std::string ranks_text(const RanksReport& report) {
  std::string text;
  for (const RankViolation& violation : report.violations) {
    std::string where;
    for (std::size_t i = 0; i < violation.ranks.size() && violation.cycle.empty(); ++i)
      where += fmt::format("{}rank {}{}", i == 0 ? "" : ", ", violation.ranks[i],
                           violation.nodes[i].empty() ? "" : " %" + violation.nodes[i]);
    text +=
        fmt::format("{}: {}{}{}\n", violation.invariant, where, where.empty() ? "" : ": ", violation.message);
  }
  if (!report.violations.empty()) return text;
  const auto count = [](std::size_t n, std::string_view what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  text = fmt::format("{}, {}, {} agree; no deadlock between ranks\n", count(report.ranks, "rank"),
                     count(report.groups, "group"), count(report.collectives, "collective"));
  if (report.as_traced != 0)
    text += fmt::format("{} of them have symbolic sizes, which were compared as traced\n", report.as_traced);
  if (report.not_compared != 0)
    text += fmt::format("{} of them have symbolic sizes of unknown number, which were not compared\n",
                        report.not_compared);
  if (!report.not_given.empty())
    text += fmt::format("{} ranks were not given and are taken to do what is asked of them\n",
                        report.not_given.size());
  return text;
}

}  // namespace

int verify_ranks(const std::vector<InputOptions>& inputs, Console& console) {
  const RanksReport report = epweave::verify_ranks(read_programs(inputs, console));
  console.print(console.json() ? report_text(ranks_report(report)) : ranks_text(report));
  return report.violations.empty() ? kFine : kDifferent;
}

}  // namespace epweave::cli
