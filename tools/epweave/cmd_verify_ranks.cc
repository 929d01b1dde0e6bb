#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "analysis/rank_view.h"
#include "base/counted.h"
#include "commands.h"
#include "common/graphs.h"
#include "common/report.h"
#include "compare/ranks/bucket_slots.h"
#include "compare/ranks/rank_axes.h"
#include "compare/ranks/rank_baked.h"
#include "compare/ranks/verify_ranks.h"
#include "rank_numbers.h"

namespace epweave::cli {
namespace {

// What was read of the graphs.
struct Reading {
  std::vector<RankProgram> programs;
  std::vector<RankViolation> baked;
  std::vector<std::string> similar;  // what only looks like a rank's number

  void add_baked(const std::vector<RankViolation>& more) {
    baked.insert(baked.end(), more.begin(), more.end());
  }
};

void explain_similar(const Graph& graph, const RankLiterals& literals, Reading& reading) {
  for (const RankLiteral& literal : literals.similar)
    reading.similar.push_back(print_similar(graph, literal));
}

// One graph for all ranks: as each rank runs it.
Reading read_shared(const Graph& graph) {
  Reading reading;
  const RankLiterals literals = find_rank_literals(graph, read_world(graph).file_rank);
  explain_similar(graph, literals, reading);
  SharedProgram shared = read_shared_program(graph, literals);
  reading.baked = std::move(shared.wrong);
  reading.programs = std::move(shared.ranks);
  return reading;
}

// Ranks as the files say, or by position where no file says its own.
Reading read_ranks(const std::vector<InputOptions>& inputs, Console& console) {
  if (inputs.size() == 1) {
    console.progress(fmt::format("reading {}", display_name(inputs[0])));
    return read_shared(read_sound_input(inputs[0], nullptr, Soundness::kStructure));
  }
  Reading reading;
  std::vector<RankProgram>& programs = reading.programs;
  std::map<std::uint32_t, std::string> files;  // of each rank
  NumbersOfRanks numbers;
  for (const InputOptions& input : inputs) {
    console.progress(fmt::format("reading {}", display_name(input)));
    const Graph graph = read_sound_input(input, nullptr, Soundness::kStructure);
    programs.push_back(read_own_program(graph));
    if (!programs.back().rank) continue;
    const std::uint32_t rank = *programs.back().rank;
    const RankLiterals literals = find_rank_literals(graph, rank);
    reading.add_baked(find_wrong_axes(graph));
    reading.add_baked(find_foreign(graph, literals, rank));
    reading.add_baked(find_foreign_slots(graph, rank));
    numbers.add(graph, literals, rank);
    explain_similar(graph, literals, reading);
    const auto [other, is_new] = files.try_emplace(rank, display_name(input));
    if (!is_new)
      throw InputError(
          fmt::format("{} and {} are both of rank {}; give one graph for each rank, or one alone "
                      "that all ranks run",
                      other->second, display_name(input), other->first));
  }
  if (files.empty()) {
    console.warn("the files do not say their ranks: the first is taken for rank 0, and so on");
    for (std::size_t i = 0; i < programs.size(); ++i) programs[i].rank = static_cast<std::uint32_t>(i);
  } else if (files.size() < programs.size()) {
    throw InputError(fmt::format("{} says its rank (`info rank`), and others do not", files.begin()->second));
  }
  reading.add_baked(numbers.find_contradictions());
  return reading;
}

Json stuck_report(const StuckRank& stuck) {
  return {{"rank", stuck.rank},   {"at", stuck.at},         {"launch", stuck.launch},
          {"group", stuck.group}, {"misses", stuck.misses}, {"never", stuck.never}};
}

Json ranks_report(const RanksReport& report, const std::vector<std::string>* similar) {
  Json violations = Json::array();
  for (const RankViolation& violation : report.violations) {
    Json cycle = Json::array();
    for (const StuckRank& stuck : violation.cycle) cycle.push_back(stuck_report(stuck));
    Json row = {{"invariant", violation.invariant},
                {"message", violation.message},
                {"ranks", violation.ranks},
                {"nodes", violation.nodes},
                {"cycle", std::move(cycle)}};
    if (!violation.expression.empty())
      row.update({{"argument", violation.argument},
                  {"value", violation.value},
                  {"expression", violation.expression}});
    violations.push_back(std::move(row));
  }
  Json made = {{"ok", report.violations.empty()}, {"ranks", report.ranks},
               {"groups", report.groups},         {"collectives", report.collectives},
               {"as_traced", report.as_traced},   {"not_compared", report.not_compared},
               {"not_given", report.not_given},   {"violations", std::move(violations)}};
  if (similar != nullptr) made["literals"] = *similar;
  return made;
}

std::string document_text(const RanksOptions& options, const RanksReport& report,
                          const std::vector<std::string>* similar) {
  Json document = {{"inputs", Json::array()}};
  for (const InputOptions& input : options.inputs) document["inputs"].push_back(file_report(input.path));
  document.update(ranks_report(report, similar));
  return report_text(std::move(document));
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
  text = fmt::format("{}, {}, {} agree; no deadlock between ranks\n", counted(report.ranks, "rank"),
                     counted(report.groups, "group"), counted(report.collectives, "collective"));
  if (report.as_traced != 0)
    text += fmt::format("{} of them have symbolic sizes, which were compared as traced\n", report.as_traced);
  if (report.not_compared != 0)
    text += fmt::format(
        "{} of them have sizes or types that are not recorded, or tables that each rank makes "
        "from its own data, which were not compared\n",
        report.not_compared);
  if (const std::size_t n = report.not_given.size(); n > 0)
    text += n == 1 ? "1 rank was not given and is taken to do what is asked of it\n"
                   : fmt::format("{} ranks were not given and are taken to do what is asked of them\n", n);
  return text;
}

}  // namespace

int verify_ranks(const RanksOptions& options, Console& console) {
  Reading reading = read_ranks(options.inputs, console);
  RanksReport report = epweave::verify_ranks(reading.programs);
  report.violations.insert(report.violations.begin(), reading.baked.begin(), reading.baked.end());
  const auto* similar = options.explain_literals ? &reading.similar : nullptr;
  std::string text = console.json() ? document_text(options, report, similar) : ranks_text(report);
  if (similar != nullptr && !console.json())
    for (const std::string& line : *similar) text += fmt::format("note: {}\n", line);
  console.print(text);
  return report.violations.empty() ? kFine : kDifferent;
}

}  // namespace epweave::cli
