#include "cost/memory.h"

#include <catch2/catch.hpp>

#include "cost/graph_of_test.h"
#include "io/file.h"

namespace epweave {
namespace {

const DeviceMemory& only(const MemoryEstimate& estimate) {
  REQUIRE(estimate.devices.size() == 1);
  REQUIRE(estimate.unknown == 0);
  return estimate.devices.front();
}

MemoryEstimate memory_of(const Graph& graph) {
  Extents extents(graph);
  return estimate_memory(graph, extents);
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

TEST_CASE("every storage of a real graph has a size") {
  const Graph graph = read_graph(EPWEAVE_SOURCE_DIR "/testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz");
  const MemoryEstimate memory = memory_of(graph);
  REQUIRE(memory.unknown == 0);
  REQUIRE(memory.devices.size() == 2);  // counts of rows are read on the CPU
  for (const DeviceMemory& device : memory.devices) REQUIRE(device.peak > device.inputs);
}

}  // namespace
}  // namespace epweave
