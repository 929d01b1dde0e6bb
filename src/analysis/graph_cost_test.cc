#include "analysis/graph_cost.h"

#include <catch2/catch.hpp>

#include "analysis/memory.h"
#include "io/file.h"
#include "ir/text.h"

namespace epweave {
namespace {

Graph graph_of(const std::string& nodes, const std::string& tables = "") {
  return parse_text("epweave text 1\ndevice cuda:0\n" + tables + "\ngraph\n" + nodes, "test.txt");
}

GraphCost cost_of(const Graph& graph) {
  Extents extents(graph);
  return count_cost(graph, extents);
}

const DeviceMemory& only(const MemoryEstimate& estimate) {
  REQUIRE(estimate.devices.size() == 1);
  REQUIRE(estimate.unknown == 0);
  return estimate.devices.front();
}

MemoryEstimate memory_of(const Graph& graph) {
  Extents extents(graph);
  return estimate_memory(graph, extents);
}

TEST_CASE("flops of matrix products") {
  const auto flops = [](const std::string& call) {
    return cost_of(graph_of("  %a = placeholder : bf16[6, 4]\n  %b = placeholder : bf16[4, 5]\n"
                            "  %s = placeholder : bf16[2, 6, 4]\n  %t = placeholder : bf16[2, 4, 5]\n"
                            "  %v = placeholder : bf16[5]\n  %o = placeholder : i32[2]\n"
                            "  %k = placeholder : bf16[4, 6]\n  %l = placeholder : bf16[6, 5]\n" +
                            call + "  output([%r])\n"))
        .flops;
  };
  REQUIRE(flops("  %r = aten.mm.default(%a, %b) : bf16[6, 5]\n") == 2 * 6 * 4 * 5);
  REQUIRE(flops("  %r = aten.addmm.default(%v, %a, %b) : bf16[6, 5]\n") == 2 * 6 * 4 * 5);
  REQUIRE(flops("  %r = aten.bmm.default(%s, %t) : bf16[2, 6, 5]\n") == 2 * 2 * 6 * 4 * 5);
  // Six rows, each for one of two experts.
  REQUIRE(flops("  %r = aten._grouped_mm.default(%a, %t, %o) : bf16[6, 5]\n") == 2 * 6 * 4 * 5);
  // Six rows cut into two groups: two weight gradients.
  REQUIRE(flops("  %r = aten._grouped_mm.default(%k, %l, %o) : bf16[2, 4, 5]\n") == 2 * 4 * 6 * 5);
  REQUIRE(flops("  %r = aten.neg.default(%a) : bf16[6, 4]\n") == 0);
}

TEST_CASE("flops of attention") {
  const Graph graph = graph_of(
      "  %q = placeholder : bf16[2, 3, 8, 6]\n  %k = placeholder : bf16[2, 3, 16, 6]\n"
      "  %v = placeholder : bf16[2, 3, 16, 4]\n"
      "  %r = aten._scaled_dot_product_flash_attention.default(%q, %k, %v)\n  output([%r])\n");
  REQUIRE(cost_of(graph).flops == 2 * (2 * 3 * 8) * 16 * (6 + 4));
}

TEST_CASE("bytes are of operands and results, and views move none") {
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

// All tensors below are 1 KiB.
TEST_CASE("a storage lives until the last use of any view of it") {
  const Graph graph = graph_of(
      "  %x = placeholder : f32[16, 16]\n  %a = aten.neg.default(%x) : f32[16, 16]\n"
      "  %v = aten.t.default(%a) : f32[16, 16]{1, 16}\n  %b = aten.neg.default(%x) : f32[16, 16]\n"
      "  %c = aten.add.Tensor(%b, %v) : f32[16, 16]\n  %d = aten.neg.default(%c) : f32[16, 16]\n  "
      "output([%d])\n");
  const MemoryEstimate estimate = memory_of(graph);
  const DeviceMemory& memory = only(estimate);
  REQUIRE(memory.inputs == 1024);
  REQUIRE(memory.peak == 4 * 1024);  // x, a, b, c
  REQUIRE(graph.text(graph.step().nodes[memory.at].name) == "c");
  REQUIRE(memory.largest.size() == 3);
}

TEST_CASE("a reshape is a view where the strides allow") {
  const auto peak = [](const std::string& type) {
    return only(memory_of(graph_of("  %x = placeholder : " + type +
                                   "\n  %r = aten.reshape.default(%x, [256]) : f32[256]\n  output([%r])\n")))
        .peak;
  };
  REQUIRE(peak("f32[16, 16]") == 1024);
  REQUIRE(peak("f32[16, 16]{1, 16}") == 2048);
}

TEST_CASE("a collective holds what it was given until something waits for it") {
  const auto peak = [](const std::string& order) {
    return only(memory_of(graph_of(
                    "  %x = placeholder : f32[16, 16]\n  %a = aten.neg.default(%x) : f32[16, 16]\n"
                    "  %e = _c10d_functional.all_reduce.default(%a, \"sum\", \"0\") : f32[16, 16]\n" +
                        order + "  output([%w, %b])\n",
                    "group 0 ranks=[0, 1]\n")))
        .peak;
  };
  const std::string wait = "  %w = _c10d_functional.wait_tensor.default(%e) : f32[16, 16]\n";
  const std::string work = "  %b = aten.neg.default(%x) : f32[16, 16]\n";
  REQUIRE(peak(wait + work) == 3 * 1024);
  REQUIRE(peak(work + wait) == 4 * 1024);
}

TEST_CASE("elements of a tuple end one by one, and in-place ops take nothing") {
  const Graph graph = graph_of(
      "  %x = placeholder : f32[128, 1]\n  %s = aten.topk.default(%x, 128, 0) : (f32[128, 1], i64[128, 1])\n"
      "  %i = operator.getitem(%s, 1) : i64[128, 1]\n  %n = aten.neg.default(%i) : i64[128, 1]\n"
      "  %m = aten.add_.Tensor(%n, 1) : i64[128, 1]\n  output([%m])\n");
  const MemoryEstimate estimate = memory_of(graph);
  const DeviceMemory& memory = only(estimate);
  REQUIRE(memory.inputs == 512);
  REQUIRE(memory.peak == 512 + 1024 + 1024);  // the indices and what is made of them; the values are gone
}

TEST_CASE("chunking computes the same flops, and the estimate covers real graphs") {
  const Graph graph = read_graph(EPWEAVE_SOURCE_DIR "/testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz");
  Extents extents(graph);
  const GraphCost cost = count_cost(graph, extents);
  const MemoryEstimate memory = estimate_memory(graph, extents);
  REQUIRE(cost.not_counted == 0);
  REQUIRE(memory.unknown == 0);
  const Graph chunked = read_graph(EPWEAVE_SOURCE_DIR "/testdata/graphs/dsv3_debug_ep2.2_chunk_batch.epw.gz");
  Extents chunked_extents(chunked);
  REQUIRE(count_cost(chunked, chunked_extents).flops == cost.flops);
}

}  // namespace
}  // namespace epweave
