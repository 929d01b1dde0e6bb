#include "replay/collectives/collective_call.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "ir/text/text.h"

namespace epweave::replay {
namespace {

TEST_CASE("a launch is the graph's where its extents and splits are numbers") {
  const Graph graph = parse_text(R"(epweave text 1
group 1 ranks=[0, 1]
symbol u0 range=[0, 64] unbacked
symbol s0 hint=8
graph
  %x = placeholder : f32[8, 4] role=user which=x
  %s = placeholder : f32[s0, 4] role=user which=s
  %n = placeholder : i64[] role=user which=n
  %u = aten._local_scalar_dense.default(%n) : SymInt(u0) bind(u0)
  %y = aten.slice.Tensor(%x, 0, 0, %u) : f32[u0, 4]
  %untyped = aten.neg.default(%x)
  %reduced = _c10d_functional.all_reduce.default(%x, "sum", "1") : f32[8, 4]
  %equal = _c10d_functional.all_to_all_single.default(%x, [], [], "1") : f32[8, 4]
  %split = _c10d_functional.all_to_all_single.default(%x, [4, 4], [2, 6], "1") : f32[8, 4]
  %listed = _c10d_functional.all_reduce_coalesced.default([%x, %x], "sum", "1") : (f32[8, 4], f32[8, 4])
  %named = _c10d_functional.all_reduce.default(%x, "sum", group_name="1") : f32[8, 4]
  %of_symbol = _c10d_functional.all_reduce.default(%s, "sum", "1") : f32[s0, 4]
  %of_rows = _c10d_functional.all_reduce.default(%y, "sum", "1") : f32[u0, 4]
  %of_untyped = _c10d_functional.all_reduce.default(%untyped, "sum", "1") : f32[8, 4]
  %of_split = _c10d_functional.all_to_all_single.default(%x, [4, 4], [%u, 4], "1") : f32[8, 4]
  %of_sum = _c10d_functional.all_to_all_single.default(%x, [4, 4], [sym(u0), sym(-u0 + 8)], "1") : f32[8, 4]
  %one_open = _c10d_functional.all_reduce_coalesced.default([%x, %y], "sum", "1") : (f32[8, 4], f32[u0, 4])
  output([%reduced])
)",
                                 "test");
  std::set<std::string> known;
  for (const NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.kind == NodeKind::kCall && node.op != nullptr && find_collective(*node.op) &&
        is_known_from_graph(graph, node))
      known.emplace(graph.text(node.name));
  }
  CHECK(known == std::set<std::string>{"reduced", "equal", "split", "listed", "named"});
}

}  // namespace
}  // namespace epweave::replay
