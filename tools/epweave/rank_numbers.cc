#include "rank_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "analysis/rank_view.h"
#include "analysis/world.h"
#include "compare/ranks/bucket_slots.h"
#include "compare/ranks/rank_axes.h"
#include "compare/ranks/rank_baked.h"
#include "compare/ranks/rank_groups.h"
#include "compare/ranks/rank_slices.h"
#include "ops/mesh_calls.h"
#include "passes/specialize.h"

namespace epweave::cli {
namespace {

void add(std::vector<RankViolation>& found, const std::vector<RankViolation>& more) {
  found.insert(found.end(), more.begin(), more.end());
}

bool has_listed_groups(const Graph& graph) {
  return find_entry(*graph.context, graph.info, kRankGroupsKey) != nullptr;
}

bool computes_places(const Graph& graph) {
  return std::ranges::any_of(
      graph.step().order, [&](NodeId id) { return mesh_call_of(graph.step().nodes[id]) != MeshCall::kNone; });
}

// Tables of exchanges that the running program makes, of what it reads from the device: recorded is
// what the traced rank's data gave, which says nothing of other ranks.
RankProgram forget_own_tables(RankProgram program) {
  auto calls = std::make_shared<RankCalls>(*program.calls);
  for (RankLaunch& launch : calls->launches) {
    if (!launch.is_as_traced) continue;
    std::ranges::fill(launch.sends, std::nullopt);
    std::ranges::fill(launch.receives, std::nullopt);
  }
  program.calls = std::move(calls);
  return program;
}

}  // namespace

RankProgram read_own_program(const Graph& graph) {
  const bool is_specialized =
      std::ranges::any_of(graph.passes, [](const PassRun& pass) { return pass.name == "specialize"; });
  RankProgram program = list_rank_program(graph);
  return is_specialized ? forget_own_tables(std::move(program)) : program;
}

bool differs_by_rank(const Graph& graph) {
  return is_rank_agnostic(graph) && (computes_places(graph) || has_listed_groups(graph));
}

std::string print_wrong_number(const RankViolation& wrong) {
  std::string where;
  for (std::size_t i = 0; i < wrong.ranks.size(); ++i)
    where += fmt::format("{}rank {}{}{}", i == 0 ? "" : ", ", wrong.ranks[i],
                         wrong.nodes[i].empty() ? "" : " %", wrong.nodes[i]);
  return fmt::format("{}: {}", where, wrong.message);
}

std::vector<RankViolation> find_wrong_numbers(const Graph& graph, const RankLiterals& literals,
                                              const VisitRank& visit) {
  const World world = read_world(graph);
  std::vector<RankViolation> found = find_wrong_axes(graph);
  const bool is_skewed = !found.empty();
  add(found, find_baked(graph, literals, world.file_rank));
  add(found, find_baked_slices(graph));
  if (is_skewed) return found;
  if (!differs_by_rank(graph)) {
    add(found, find_foreign_slots(graph, world.file_rank));
    return found;
  }
  const bool is_baked = !found.empty();
  NumbersOfRanks numbers;
  for (std::uint32_t rank = 0; rank < world.size; ++rank) {
    if (is_baked && !visit) break;
    const Graph own = epweave::specialize(graph, {.rank = rank, .baked = BakedNumbers::kKeep}).graph;
    if (visit) visit(own, rank);
    if (!found.empty()) continue;  // said already
    const RankLiterals of_rank = find_rank_literals(own, rank);
    add(found, find_foreign(own, of_rank, rank));
    add(found, find_foreign_slots(own, rank));
    numbers.add(own, of_rank, rank);
  }
  if (found.empty()) add(found, numbers.find_contradictions());
  return found;
}

SharedProgram read_shared_program(const Graph& graph, const RankLiterals& literals) {
  SharedProgram made;
  const auto keep = [&](const Graph& own, std::uint32_t rank) {
    made.ranks.push_back(forget_own_tables(list_rank_program(own)));
    made.ranks.back().rank = rank;
  };
  made.wrong = find_wrong_numbers(graph, literals, keep);
  const bool is_skewed = std::ranges::any_of(
      made.wrong, [](const RankViolation& wrong) { return wrong.invariant == "ranks-axis"; });
  if (!is_skewed && !differs_by_rank(graph))
    made.ranks = spread_over_ranks(forget_own_tables(list_rank_program(graph)));
  return made;
}

}  // namespace epweave::cli
