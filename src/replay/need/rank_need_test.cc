#include "replay/need/rank_need.h"

#include <catch2/catch.hpp>

#include "analysis/fused_products.h"
#include "io/file.h"
#include "replay/inputs/inputs.h"
#include "replay/kernels/host/kernels.h"
#include "replay/run/executor.h"
#include "replay/values/block_use.h"

namespace epweave::replay {
namespace {

struct Measured {
  Rank ranks = 0;
  std::uint64_t bytes = 0;  // in blocks of the host, beside inputs
};

Measured measure(const Graph& graph) {
  const KernelTable kernels = make_cpu_kernels();
  const World world = derive_world(graph, 0);
  const InputData data = 0;
  const std::vector<RankInputs> inputs = make_inputs(graph, world, kernels, data);
  restart_block_peak();
  const std::uint64_t before = peak_block_bytes();
  run_ranks(graph, world, kernels, inputs);
  return {world.size, peak_block_bytes() - before};
}

Graph read_example(const std::string& name) {
  return expand_fused_products(read_graph(std::string(EPWEAVE_SOURCE_DIR) + "/testdata/graphs/" + name));
}

void require_bound(std::uint64_t predicted, std::uint64_t measured) {
  INFO("predicted " << predicted << ", measured " << measured);
  CHECK(predicted >= measured);
  CHECK(static_cast<double>(predicted) <= 1.5 * static_cast<double>(measured));
}

TEST_CASE("the memory of a run on the CPU is bounded", "[slow]") {
  const auto* name = GENERATE("llama3_debug_fsdp4.1_norm.epw.gz", "dsv3_debug_ep2.1b_remat.epw.gz",
                              "dsv3_debug_ep2.4_bucket.epw.gz");
  INFO(name);
  const Graph graph = read_example(name);
  const RankNeed need = NeedFinder(graph).find(NeedOf::kHost);
  const Measured measured = measure(graph);
  require_bound(measured.ranks * need.at_peak(), measured.bytes);
}

}  // namespace
}  // namespace epweave::replay
