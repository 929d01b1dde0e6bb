#include "cost/graph_cost.h"

#include <catch2/catch.hpp>

#include "cost/graph_of_test.h"
#include "io/file.h"

namespace epweave {
namespace {

GraphCost cost_of(const Graph& graph) {
  Extents extents(graph);
  return count_cost(graph, extents);
}

TEST_CASE("calls are summed by module, numbers as *") {
  const Graph graph = graph_of(
      "  %x = placeholder : f32[4, 8] @layers.3.moe\n  %t = aten.t.default(%x) : f32[8, 4]{1, 8} "
      "@layers.3.moe.gate\n"
      "  %y = aten.neg.default(%t) : f32[8, 4]{1, 8} @layers.3.moe.gate\n"
      "  %z = aten.neg.default(%y) : f32[8, 4]{1, 8} @layers.4.moe\n  output([%z])\n");
  const GraphCost cost = cost_of(graph);
  REQUIRE(cost.bytes == 2 * 2 * 128);
  REQUIRE(cost.modules.size() == 1);
  REQUIRE(cost.modules[0].module == "layers.*.moe");
  REQUIRE(cost.modules[0].calls == 3);
  REQUIRE(cost.modules[0].bytes == cost.bytes);
}

TEST_CASE("a call whose cost is not known counts in no sum") {
  const GraphCost cost =
      cost_of(graph_of("  %x = placeholder : f32[v, 8]\n  %a = aten.neg.default(%x) : f32[v, 8]\n"
                       "  %b = mine.odd.default(%x) : f32[4, 8]\n  %c = aten.neg.default(%b) : f32[4, 8]\n"
                       "  %e = _c10d_functional.all_reduce.default(%a, \"sum\", \"0\") : f32[v, 8]\n"
                       "  output([%c, %e])\n",
                       "group 0 ranks=[0, 1]\nsymbol v\n"));
  REQUIRE(cost.not_counted == 3);
  REQUIRE(cost.bytes == 2 * 128);
  REQUIRE(cost.collectives.size() == 1);
  REQUIRE(cost.collectives[0].launches == 1);
  REQUIRE(cost.collectives[0].bytes == 0);
}

TEST_CASE("rows that experts get are taken to be balanced") {
  const Graph graph = graph_of(
      "  %x = placeholder : bf16[12, 8]\n  %n = placeholder : i64[4]@cpu\n"
      "  %c = operator.getitem(%n, 0) : i64[]@cpu\n"
      "  %u0 = aten._local_scalar_dense.default(%c) : SymInt(u0)\n"
      "  %u1 = aten._local_scalar_dense.default(%c) : SymInt(u1)\n"
      "  %e = _c10d_functional.all_to_all_single.default(%x, [%u0, %u1], [3, 9], \"ep\") : bf16[u0 + u1, 8]\n"
      "  %w = _c10d_functional.wait_tensor.default(%e) : bf16[u0 + u1, 8]\n  output([%w])\n",
      "group ep ranks=[0, 1]\nsymbol u0 range=[0, 12] unbacked\nsymbol u1 range=[0, 12] unbacked\n");
  Extents extents(graph);
  const GraphCost cost = count_cost(graph, extents);
  REQUIRE(extents.assumed() == 2);
  REQUIRE(cost.not_counted == 0);
  REQUIRE(cost.collectives.size() == 1);
  REQUIRE(cost.collectives[0].group == "ep");
  REQUIRE(cost.collectives[0].launches == 1);
  REQUIRE(cost.collectives[0].bytes == 12 * 8 * 2);
}

TEST_CASE("chunking computes the same flops, and every call of a real graph has a cost") {
  const Graph graph = read_graph(EPWEAVE_SOURCE_DIR "/testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz");
  Extents extents(graph);
  const GraphCost cost = count_cost(graph, extents);
  REQUIRE(cost.not_counted == 0);
  const Graph chunked = read_graph(EPWEAVE_SOURCE_DIR "/testdata/graphs/dsv3_debug_ep2.2_chunk_batch.epw.gz");
  Extents chunked_extents(chunked);
  REQUIRE(count_cost(chunked, chunked_extents).flops == cost.flops);
}

}  // namespace
}  // namespace epweave
