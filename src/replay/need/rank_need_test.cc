#include "replay/need/rank_need.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <utility>

#include "analysis/fused_products.h"
#include "io/file.h"
#include "ir/text/text.h"
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

void require_bound(std::uint64_t predicted, std::uint64_t measured, double most = 1.5) {
  INFO("predicted " << predicted << ", measured " << measured);
  CHECK(predicted >= measured);
  CHECK(static_cast<double>(predicted) <= most * static_cast<double>(measured));
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

// In doubles, several to an element, but for uniform ones, which are written where they stay.
TEST_CASE("the memory of a run that draws random numbers is bounded") {
  const auto [call, most] =
      GENERATE(std::pair("aten.rand_like.default(%x) : bf16[512, 512]", 1.1),
               std::pair("aten.bernoulli.p(%x, 0.25) : bf16[512, 512]", 1.1),
               std::pair("aten.randn_like.default(%x) : bf16[512, 512]", 1.1),
               std::pair("aten.exponential.default(%x) : bf16[512, 512]", 1.1),
               std::pair("aten.randint_like.low_dtype(%x, 2, 7) : bf16[512, 512]", 1.1),
               std::pair("aten.native_dropout.default(%x, 0.1, True) : (bf16[512, 512], b8[512, 512])", 1.1),
               std::pair("aten.cauchy_.default(%x) : bf16[512, 512]", 1.1));
  INFO(call);
  const Graph graph = parse_text(fmt::format(R"(epweave text 1
graph
  %x = placeholder : bf16[512, 512] role=user which=x
  %y = {}
  output([%y])
)",
                                             call),
                                 "test");
  const RankNeed need = NeedFinder(graph).find(NeedOf::kHost);
  require_bound(need.at_peak(), measure(graph).bytes, most);
}

TEST_CASE("bounds are counted beside what has them, and beside what such values are written into") {
  const auto need_of = [](const char* text, std::initializer_list<std::uint32_t> bounded) {
    const Graph graph = parse_text(text, "test");
    IdSet<NodeId> followed;
    for (const NodeId id : graph.step().order)
      for (const std::uint32_t place : bounded)
        if (id == graph.step().order[place]) followed.insert(id);
    NeedFinder finder(graph);
    const RankNeed without = finder.find(NeedOf::kHost), with = finder.find(NeedOf::kHost, &followed);
    CHECK(with.values >= without.values);
    return std::vector<std::uint64_t>{with.bounded, with.values - without.values};
  };
  constexpr std::uint64_t kOfFloat = 4 + 8;  // a bound, and the number without rounding
  // A value made so; rows of a larger one that are written, whose bounds are of all its rows; an
  // input's.
  CHECK(need_of(R"(epweave text 1
graph
  %x = placeholder : f32[16, 8] role=user which=x
  %y = aten.neg.default(%x) : f32[16, 8]
  output([%y])
)",
                {1}) == std::vector<std::uint64_t>{16 * 8 * (4 + kOfFloat), 16 * 8 * kOfFloat});
  CHECK(need_of(R"(epweave text 1
graph
  %x = placeholder : f32[16, 8] role=user which=x
  %z = aten.zeros.default([64, 8]) : f32[64, 8]
  %s = aten.slice.Tensor(%z, 0, 0, 16) : f32[16, 8]
  %c = aten.copy_.default(%s, %x) : f32[16, 8]
  output([%z])
)",
                {3}) == std::vector<std::uint64_t>{64 * 8 * kOfFloat, 64 * 8 * kOfFloat});
  CHECK(need_of(R"(epweave text 1
graph
  %x = placeholder : bf16[16, 8] role=user which=x
  %b = placeholder : bf16[16, 8] role=buffer which=b
  %c = aten.add_.Tensor(%b, %x) : bf16[16, 8]
  output([%c])
)",
                {2}) == std::vector<std::uint64_t>{16 * 8 * kOfFloat, 16 * 8 * kOfFloat});
  // Of a complex number each part has a bound; whole numbers are not rounded.
  CHECK(need_of(R"(epweave text 1
graph
  %x = placeholder : c64[16, 8] role=user which=x
  %y = aten.mul.Tensor(%x, %x) : c64[16, 8]
  %f = placeholder : f32[16, 8] role=user which=f
  %i = aten.gt.Tensor(%f, %f) : b8[16, 8]
  output([%y, %i])
)",
                {1, 3})[0] == 16 * 8 * (8 + 2 * kOfFloat) + 16 * 8 * (1 + 4));
}

}  // namespace
}  // namespace epweave::replay
