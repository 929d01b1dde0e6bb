#include "rank_numbers.h"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/rank_view.h"
#include "analysis/world.h"
#include "compare/ranks/bucket_slots.h"
#include "compare/ranks/rank_baked.h"
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

}  // namespace

bool differs_by_rank(const Graph& graph) {
  return is_rank_agnostic(graph) && (computes_places(graph) || has_listed_groups(graph));
}

std::string print_wrong_number(const RankViolation& wrong) {
  std::string where;
  for (std::size_t i = 0; i < wrong.ranks.size(); ++i)
    where += fmt::format("{}rank {} %{}", i == 0 ? "" : ", ", wrong.ranks[i], wrong.nodes[i]);
  return fmt::format("{}: {}", where, wrong.message);
}

std::vector<RankViolation> find_wrong_numbers(const Graph& graph, const RankLiterals& literals,
                                              const VisitRank& visit) {
  const World world = read_world(graph);
  std::vector<RankViolation> found = find_baked(graph, literals, world.file_rank);
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

}  // namespace epweave::cli
