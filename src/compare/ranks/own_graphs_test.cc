// torchtitan's graphs for all ranks, as each rank's own: they hold, agree with each other, and are
// what was traced on that rank.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "analysis/verify.h"
#include "analysis/world.h"
#include "compare/diff/diff.h"
#include "compare/ranks/rank_program.h"
#include "compare/ranks/verify_ranks.h"
#include "io/file.h"
#include "passes/generalize/generalize.h"
#include "passes/specialize.h"

namespace epweave {
namespace {

std::string path_of(const std::string& name) {
  return fmt::format("{}/testdata/graphs/{}.epw.gz", EPWEAVE_SOURCE_DIR, name);
}

// With the numbers of one rank that its trace holds replaced.
Graph read_general(const std::string& name) {
  const Generalization made = generalize({read_graph(path_of(name))}, Repair::kYes);
  REQUIRE(made.graph);
  return *made.graph;
}

struct General {
  const char* name;
  std::size_t collectives;
};

TEST_CASE("R4: the graphs of all ranks hold and agree") {
  for (const auto& [name, collectives] :
       {General{"llama3_debug_fsdp2_tp2_coor.0_traced", 388},
        General{"llama3_debug_fsdp2_tp2_coor.1_norm", 388}, General{"dsv3_debug_ep2_coor.0_traced", 291},
        General{"dsv3_debug_ep2_coor.1_norm", 291}, General{"dsv3_debug_ep2_coor.1b_remat", 387}}) {
    INFO(name);
    const Graph general = read_general(name);
    std::vector<RankProgram> programs;
    for (Rank rank = 0; rank < read_world(general).size; ++rank) {
      const Graph own = specialize(general, {.rank = rank}).graph;
      INFO("rank " << rank);
      for (const Violation& violation : verify_graph(own)) FAIL_CHECK(print_violation(own, violation));
      programs.push_back(list_rank_program(own));
      CHECK(programs.back().rank == rank);
    }
    const RanksReport report = verify_ranks(programs);
    for (const RankViolation& violation : report.violations) FAIL_CHECK(violation.message);
    CHECK(report.ranks == 4);
    CHECK(report.collectives == collectives);
  }
}

TEST_CASE("R5: of rank 0, what was traced on rank 0, node by node") {
  for (const auto& [general, traced] :
       {std::pair("llama3_debug_fsdp2_tp2_coor.0_traced", "llama3_debug_fsdp2_tp2.0_traced"),
        std::pair("dsv3_debug_ep2_coor.0_traced", "dsv3_debug_ep2.0_traced")}) {
    INFO(general);
    const Graph own = specialize(read_general(general), {.rank = 0}).graph;
    const Graph wanted = read_graph(path_of(traced), std::nullopt, own.context);
    const GraphDiff diff = diff_graphs(own, wanted, {.names = false, .metadata = false, .provenance = false});
    CHECK(diff.bodies.front().same > 2000);
    for (const BodyDiff& body : diff.bodies) CHECK(body.nodes.empty());
  }
}

}  // namespace
}  // namespace epweave
