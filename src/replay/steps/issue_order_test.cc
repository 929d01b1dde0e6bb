#include "replay/steps/issue_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "analysis/order.h"
#include "io/file.h"
#include "ir/text/text.h"

namespace epweave::replay {
namespace {

std::vector<std::string> names(const Graph& graph, const std::vector<NodeId>& order) {
  std::vector<std::string> result;
  for (NodeId id : order) result.emplace_back(graph.text(graph.step().nodes[id].name));
  return result;
}

}  // namespace

TEST_CASE("shuffled orders of real graphs are legal, near the graph's own, and given by the seed") {
  const std::string name = GENERATE("dsv3_debug_ep2.5_schedule", "dsv3_debug_ep2_coor.1b_remat",
                                    "dsv3_debug_ep2_allflags_ce.7_dense", "qwen3_moe_ep2.4_bucket",
                                    "llama3_debug_fsdp2_tp2.0_traced");
  const Graph graph = read_graph(fmt::format("{}/testdata/graphs/{}.epw.gz", EPWEAVE_SOURCE_DIR, name));
  const Body& step = graph.step();
  INFO(name);
  const OrderFacts facts = find_order_facts(graph, step);
  Body shuffled = step;
  shuffled.order = shuffle_order(graph, step, 1);
  const auto violation = find_order_violation(facts, shuffled, {});
  CHECK(!violation);
  CHECK(shuffled.order == shuffle_order(graph, step, 1));
  CHECK(shuffled.order != shuffle_order(graph, step, 2));
  std::size_t moved = 0;
  std::vector<bool> is_placed(step.order.size());
  std::size_t first_left = 0, farthest = 0;
  IdVector<NodeId, std::size_t> position(step.nodes.size(), 0);
  for (std::size_t i = 0; i < step.order.size(); ++i) position[step.order[i]] = i;
  for (std::size_t i = 0; i < step.order.size(); ++i) {
    const std::size_t at = position[shuffled.order[i]];
    moved += at != i ? 1 : 0;
    farthest = std::max(farthest, at - std::min(at, first_left));
    is_placed[at] = true;
    while (first_left < is_placed.size() && is_placed[first_left]) ++first_left;
  }
  CHECK(moved > step.order.size() / 2);
  CHECK(farthest <= kReach);
}

TEST_CASE("what must stay in order does: writes, launches, reads of the host, inputs and the output") {
  const Graph graph = parse_text(R"(epweave text 1
device cuda:0
group 7 ranks=[0, 1]
symbol u0 hint=1 unbacked
graph
  %x = placeholder : f32[2]
  %y = placeholder : i64[1]
  %a = aten.neg.default(%x) : f32[2]
  %b = aten.add_.Tensor(%a, %x) : f32[2]
  %c = aten.relu.default(%a) : f32[2]
  %d = aten.mul_.Tensor(%a, %x) : f32[2]
  %g = _c10d_functional.all_reduce.default(%x, "sum", "7") : f32[2]
  %h = _c10d_functional.all_reduce.default(%c, "sum", "7") : f32[2]
  %v = _c10d_functional.wait_tensor.default(%g) : f32[2]
  %w = _c10d_functional.wait_tensor.default(%h) : f32[2]
  %early = aten._to_copy.default(%y, dtype=i64, layout=torch.strided, device=@cpu, non_blocking=True) : i64[1]@cpu
  %late = aten._to_copy.default(%y, dtype=i64, layout=torch.strided, device=@cpu) : i64[1]@cpu
  %first = aten.select.int(%early, 0, 0) : i64[]@cpu
  %n = aten._local_scalar_dense.default(%first) : SymInt(u0) bind(u0)
  output([%b, %d, %v, %w, %n, %late])
)",
                                 "issue order");
  const OrderFacts facts = find_order_facts(graph, graph.step());
  bool is_other = false;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Body shuffled = graph.step();
    shuffled.order = shuffle_order(graph, graph.step(), seed);
    INFO(fmt::format("{}", fmt::join(names(graph, shuffled.order), " ")));
    REQUIRE(!find_order_violation(facts, shuffled, {}));
    const auto at = [&](std::string_view name) {
      const auto all = names(graph, shuffled.order);
      return std::find(all.begin(), all.end(), name) - all.begin();
    };
    REQUIRE(at("x") == 0);
    REQUIRE(at("y") == 1);
    REQUIRE((at("b") < at("c") && at("c") < at("d")));
    REQUIRE(at("g") < at("h"));
    REQUIRE((at("early") < at("late") && at("late") < at("n")));
    is_other |= at("g") < at("a") && at("w") < at("v");
  }
  CHECK(is_other);
}

}  // namespace epweave::replay
