#include "passes/recompute.h"

#include <catch2/catch.hpp>

#include "passes/cpu_offload.h"
#include "passes/memory_policy.h"
#include "passes/test_text.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

// Name and tag of each node that has one.
std::string print_tags(const Graph& graph) {
  std::string text;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.recompute) text += fmt::format("{} {}\n", graph.text(node.name), graph.text(node.recompute));
  }
  return text;
}

std::string tags_of(std::string_view nodes, const MemoryPolicyOptions& options) {
  return print_tags(memory_policy(parse_test_graph(nodes), options).graph);
}

constexpr std::string_view kLayers = R"(
output other

graph
  %x = placeholder : f32[8, 8]
  %mm = aten.mm.default(%x, %x) : f32[8, 8] @layers.0.a
  %add = aten.add.Tensor(%mm, %x) : f32[8, 8] @layers.0.a
  %mm_1 = aten.mm.default(%add, %x) : f32[8, 8] @layers.0.a
  %relu = aten.relu.default(%mm_1) : f32[8, 8] @layers.0.a
  %relu_1 = aten.relu.default(%relu) : f32[8, 8] @layers.1.a
  %mm_2 = aten.mm.default(%relu_1, %x) : f32[8, 8] @layers.1.a
  %drop = aten.native_dropout.default(%mm_2, 0.5, True) : (f32[8, 8], b8[8, 8]) @layers.1.a
  %getitem = operator.getitem(%drop, 0) : f32[8, 8] @layers.1.a
  %exp = aten.exp.default(%getitem) : f32[8, 8] @lm_head
  %neg = aten.neg.default(%exp) : f32[8, 8] @loss_scale
  %mul = aten.mul.Tensor(%exp, %x) : f32[8, 8] @layers.1.a bwd
  output((%neg, %mul))
)";

TEST_CASE("default saves products, and what a higher layer reads", "[J1][J4][J7][J14]") {
  CHECK(tags_of(kLayers, {}) == R"(mm MUST_SAVE
add PREFER_RECOMPUTE
mm_1 MUST_SAVE
relu MUST_SAVE
relu_1 PREFER_RECOMPUTE
mm_2 MUST_SAVE
drop PREFER_RECOMPUTE
getitem PREFER_RECOMPUTE
neg PREFER_RECOMPUTE
)");
}

TEST_CASE("eager saves each first product of a layer", "[J13]") {
  CHECK(tags_of(kLayers, {.policy = MemoryPolicy::kEager}) == R"(mm MUST_SAVE
add PREFER_RECOMPUTE
mm_1 PREFER_RECOMPUTE
relu MUST_SAVE
relu_1 PREFER_RECOMPUTE
mm_2 MUST_SAVE
drop PREFER_RECOMPUTE
getitem PREFER_RECOMPUTE
neg PREFER_RECOMPUTE
)");
}

TEST_CASE("full saves random draws, what layers hand on, and what save names", "[J9][J10][J12][J15]") {
  CHECK(tags_of(kLayers, {.policy = MemoryPolicy::kFull, .save = {{"layers.1", "aten.mm.default"}}}) ==
        R"(mm MUST_RECOMPUTE
add MUST_RECOMPUTE
mm_1 MUST_RECOMPUTE
relu MUST_SAVE
relu_1 MUST_RECOMPUTE
mm_2 MUST_SAVE
drop MUST_SAVE
getitem MUST_SAVE
neg MUST_RECOMPUTE
)");
}

TEST_CASE("a selector that names nothing is refused, with the nearest name", "[J15]") {
  const MemoryPolicyOptions options{.policy = MemoryPolicy::kFull,
                                    .save = {{"layers.*", "aten.mmm.default"}}};
  CHECK_THROWS_WITH(memory_policy(parse_test_graph(kLayers), options),
                    Catch::Contains("did you mean layers.*::aten.mm.default?"));
  CHECK_THROWS_WITH(parse_save_selector("layers.*"), Catch::Contains("has no '::'"));
  CHECK_THROWS_WITH(parse_save_selector("layers.*::aten.mm"), Catch::Contains("names no overload"));
}

TEST_CASE("reshard=never saves the wait of an unshard chain", "[J6]") {
  constexpr std::string_view kUnshard = R"(
output other

graph
  %w = placeholder : f32[2, 8]
  %x = placeholder : f32[8, 8]
  %ag = _c10d_functional.all_gather_into_tensor.default(%w, 4, "0") : f32[8, 8] @layers.0
  %wait = _c10d_functional.wait_tensor.default(%ag) : f32[8, 8] @layers.0
  %view = aten.view.default(%wait, [8, 8]) : f32[8, 8] @layers.0
  %mul = aten.mul.Tensor(%x, %view) : f32[8, 8] @layers.0
  output((%mul,))
)";
  CHECK(tags_of(kUnshard, {.reshard = Reshard::kNever}) ==
        "ag PREFER_RECOMPUTE\nwait MUST_SAVE\nview PREFER_RECOMPUTE\nmul PREFER_RECOMPUTE\n");
  CHECK(tags_of(kUnshard, {.reshard = Reshard::kAlways}) ==
        "ag PREFER_RECOMPUTE\nwait PREFER_RECOMPUTE\nview PREFER_RECOMPUTE\nmul PREFER_RECOMPUTE\n");
  CHECK(tags_of(kUnshard, {.policy = MemoryPolicy::kNone, .reshard = Reshard::kAlways}) ==
        "ag PREFER_RECOMPUTE\nwait PREFER_RECOMPUTE\nview MUST_SAVE\nmul MUST_SAVE\n");
}

std::string recomputed(std::string_view nodes) {
  return print_code(recompute(parse_test_graph(fmt::format("output other\n\ngraph\n{}", nodes))).graph);
}

TEST_CASE("copies stand in front of their first reader, in the order of forward", "[J16][J19]") {
  CHECK(recomputed(R"(
  %x = placeholder : f32[8]
  %a = aten.neg.default(%x) : f32[8] recompute=MUST_RECOMPUTE
  %b = aten.exp.default(%a) : f32[8] recompute=MUST_RECOMPUTE
  %d = aten.exp.default(%b) : f32[8] recompute=MUST_SAVE
  %c = aten.relu.default(%a) : f32[8] recompute=MUST_RECOMPUTE
  %g = aten.mul.Tensor(%d, %c) : f32[8] bwd
  %h = aten.mul.Tensor(%g, %b) : f32[8] bwd
  output((%d, %h))
)") == R"(%x = placeholder
%a = aten.neg.default(%x)
%b = aten.exp.default(%a)
%d = aten.exp.default(%b)
%a_recomputed = aten.neg.default(%x)
%c_recomputed = aten.relu.default(%a_recomputed)
%g = aten.mul.Tensor(%d, %c_recomputed)
%b_recomputed = aten.exp.default(%a_recomputed)
%h = aten.mul.Tensor(%g, %b_recomputed)
output((%d, %h))
)");
}

TEST_CASE("a value that the loss's backward reads, too, is copied in front of that reader", "[J17]") {
  CHECK(recomputed(R"(
  %x = placeholder : f32[8]
  %a = aten.neg.default(%x) : f32[8] recompute=MUST_RECOMPUTE
  %l = aten.exp.default(%a) : f32[8] @loss
  %g = aten.mul.Tensor(%l, %a) : f32[8] @loss bwd
  %h = aten.mul.Tensor(%g, %a) : f32[8] @layers.0 bwd
  output((%l, %h))
)") == R"(%x = placeholder
%a = aten.neg.default(%x)
%l = aten.exp.default(%a)
%a_recomputed = aten.neg.default(%x)
%g = aten.mul.Tensor(%l, %a_recomputed)
%h = aten.mul.Tensor(%g, %a_recomputed)
output((%l, %h))
)");
}

TEST_CASE("a value is kept where what it reads is overwritten before backward", "[J28]") {
  const Graph graph = parse_test_graph(R"(
output other

graph
  %x = placeholder : f32[8]
  %buf = placeholder : f32[8]
  %a = aten.add.Tensor(%x, %buf) : f32[8] recompute=MUST_RECOMPUTE
  %add_ = aten.add_.Tensor(%buf, %x) : f32[8]
  %b = aten.mul.Tensor(%a, %a) : f32[8] bwd
  output((%b,))
)");
  const PassResult result = recompute(graph);
  CHECK(same_code(result.graph, graph));
  CHECK(result.notes.back() ==
        "a is tagged to be computed again and kept: its storage, or what it reads, is written between it and "
        "its "
        "readers in backward");
}

TEST_CASE("what a copy wrote is written again on its own storage") {
  CHECK(recomputed(R"(
  %x = placeholder : f32[8]
  %z = aten.zeros_like.default(%x) : f32[8] recompute=MUST_RECOMPUTE
  %f = aten.fill_.Scalar(%z, 2) : f32[8] recompute=MUST_RECOMPUTE
  %b = aten.mul.Tensor(%f, %x) : f32[8] bwd
  output((%b,))
)") == R"(%x = placeholder
%z_recomputed = aten.zeros_like.default(%x)
%f_recomputed = aten.fill_.Scalar(%z_recomputed, 2)
%b = aten.mul.Tensor(%f_recomputed, %x)
output((%b,))
)");
}

TEST_CASE("what chunk joins for backward does not part backward") {
  CHECK(recomputed(R"(
  %x = placeholder : f32[8]
  %a = aten.neg.default(%x) : f32[8] recompute=MUST_RECOMPUTE
  %b = aten.mul.Tensor(%a, %x) : f32[8] bwd
  %j = aten.cat.default([%a, %x]) : f32[16] recompute=MUST_RECOMPUTE from(chunk materialize %a @layers.0 fwd)
  %k = aten.cat.default([%a, %a]) : f32[16] recompute=MUST_SAVE from(chunk materialize %a @layers.0 fwd)
  %c = aten.mul.Tensor(%a, %b) : f32[8] bwd
  %d = aten.mul.Tensor(%j, %k) : f32[16] bwd
  output((%c, %d))
)") == R"(%x = placeholder
%a = aten.neg.default(%x)
%a_recomputed = aten.neg.default(%x)
%b = aten.mul.Tensor(%a_recomputed, %x)
%k = aten.cat.default([%a, %a])
%c = aten.mul.Tensor(%a_recomputed, %b)
%j_recomputed = aten.cat.default([%a_recomputed, %x])
%d = aten.mul.Tensor(%j_recomputed, %k)
output((%c, %d))
)");
}

TEST_CASE("random draws and two regions are refused", "[J18][J24]") {
  CHECK_THROWS_WITH(recomputed(R"(
  %x = placeholder : f32[8]
  %r = aten.rand_like.default(%x) : f32[8] recompute=MUST_RECOMPUTE
  %b = aten.mul.Tensor(%r, %x) : f32[8] bwd
  output((%b,))
)"),
                    Catch::Contains("draws random numbers"));
  CHECK_THROWS_WITH(recomputed(R"(
  %x = placeholder : f32[8]
  %a = aten.neg.default(%x) : f32[8] recompute=MUST_RECOMPUTE
  %b = aten.mul.Tensor(%a, %x) : f32[8] bwd
  %n = aten.neg.default(%x) : f32[8]
  %c = aten.mul.Tensor(%a, %b) : f32[8] bwd
  output((%b, %c))
)"),
                    Catch::Contains("in two places"));
}

TEST_CASE("without tags nothing changes", "[J25][J35]") {
  const Graph graph = parse_test_graph(kLayers);
  CHECK(same_code(recompute(graph).graph, graph));
  CHECK(same_code(cpu_offload(graph, {}).graph, graph));
}

TEST_CASE("an offloaded value goes to the host, and comes back before its first reader in backward",
          "[J31][J33]") {
  const Graph graph = parse_test_graph(R"(
device cuda:0
output other

graph
  %x = placeholder : f32[64, 64]
  %mm = aten.mm.default(%x, %x) : f32[64, 64] @layers.0 recompute=MUST_CPU_OFFLOAD
  %t = aten.t.default(%mm) : f32[64, 64] @layers.0
  %neg = aten.neg.default(%t) : f32[64, 64] @layers.1
  %g = aten.mul.Tensor(%neg, %x) : f32[64, 64] @layers.1 bwd
  %h = aten.mul.Tensor(%g, %t) : f32[64, 64] @layers.0 bwd
  output((%h,))
)");
  CHECK(print_code(cpu_offload(graph, {}).graph) == R"(%x = placeholder
%mm = aten.mm.default(%x, %x)
%offload_default = ao.offload.default(%mm)
%t = aten.t.default(%mm)
%neg = aten.neg.default(%t)
%wait_tensor_default = ao.wait_tensor.default(%offload_default, %mm, %neg)
%reload_default = ao.reload.default(%wait_tensor_default, @cuda:0, [64, 64], [64, 1])
%g = aten.mul.Tensor(%neg, %x)
%wait_tensor_default_1 = ao.wait_tensor.default(%reload_default, %wait_tensor_default)
%t_default = aten.t.default(%wait_tensor_default_1)
%h = aten.mul.Tensor(%g, %t_default)
output((%h,))
)");
}

TEST_CASE("of products, maxima and sums the first two are saved, and what a list names under full",
          "[J2][J8]") {
  constexpr std::string_view kMixed = R"(
output other

graph
  %x = placeholder : f32[8, 8]
  %mm = aten.mm.default(%x, %x) : f32[8, 8] @layers.0
  %max = aten.max.default(%mm) : f32[] @layers.0
  %mm_1 = aten.mm.default(%mm, %x) : f32[8, 8] @layers.0
  %add = aten.add.Tensor(%mm_1, %max) : f32[8, 8] @layers.0
  %mm_2 = aten.mm.default(%add, %x) : f32[8, 8] @layers.0
  output((%mm_2,))
)";
  CHECK(tags_of(kMixed, {}) ==
        "mm MUST_SAVE\nmax MUST_SAVE\nmm_1 MUST_SAVE\nadd PREFER_RECOMPUTE\nmm_2 MUST_SAVE\n");
  CHECK(tags_of(kMixed, {.policy = MemoryPolicy::kFull, .save = {{"layers.*", "aten.add.Tensor"}}}) ==
        "mm MUST_RECOMPUTE\nmax MUST_RECOMPUTE\nmm_1 MUST_RECOMPUTE\nadd MUST_SAVE\nmm_2 MUST_RECOMPUTE\n");
}

TEST_CASE("integers are saved whatever the policy, and a wait has the tag of its reduce-scatter",
          "[J3][J5]") {
  constexpr std::string_view kSized = R"(
symbol u0 hint=8
group dp ranks=[0, 1]
output other

graph
  %x = placeholder : f32[u0, 8]
  %size = aten.sym_size.int(%x, 0) : SymInt(u0) @layers.0
  %rs = _c10d_functional.reduce_scatter_tensor.default(%x, "sum", 2, "dp") : f32[u0//2, 8] @layers.0
  %wait = _c10d_functional.wait_tensor.default(%rs) : f32[u0//2, 8] @layers.0
  %neg = aten.neg.default(%wait) : f32[u0//2, 8] @layers.0
  output((%neg, %size))
)";
  CHECK(tags_of(kSized, {}) == "size MUST_SAVE\nrs MUST_SAVE\nwait MUST_SAVE\nneg PREFER_RECOMPUTE\n");
  CHECK(tags_of(kSized, {.policy = MemoryPolicy::kFull}) ==
        "size MUST_SAVE\nrs MUST_RECOMPUTE\nwait MUST_RECOMPUTE\nneg MUST_RECOMPUTE\n");
}

// Values of 16 KiB, but %small; what tags say of them is given as NAME=TAG words.
constexpr std::string_view kHostGraph = R"(
device cuda:0
output other

graph
  %x = placeholder : f32[64, 64]
  %mm = aten.mm.default(%x, %x) : f32[64, 64] @layers.0
  %big = aten.cat.default([%mm, %mm]) : f32[128, 64] @layers.0
  %t = aten.t.default(%mm) : f32[64, 64]{1, 64} @layers.0
  %small = aten.sum.dim_IntList(%t, [0]) : f32[64] @layers.0
  %unread = aten.neg.default(%t) : f32[64, 64] @layers.0
  %exp = aten.exp.default(%unread) : f32[64, 64] @layers.1
  %neg = aten.neg.default(%exp) : f32[64, 64] @layers.2
  %g2 = aten.mul.Tensor(%neg, %x) : f32[64, 64] @layers.2 bwd
  %g1 = aten.mul.Tensor(%g2, %exp) : f32[64, 64] @layers.1 bwd
  %s = aten.add.Tensor(%g1, %small) : f32[64, 64] @layers.0 bwd
  %c = aten.cat.default([%s, %s]) : f32[128, 64] @layers.0 bwd
  %b = aten.mul.Tensor(%c, %big) : f32[128, 64] @layers.0 bwd
  %g0 = aten.mul.Tensor(%s, %t) : f32[64, 64] @layers.0 bwd
  output((%g0, %b))
)";

TEST_CASE("the largest values go to the host, but no views, nothing small, nothing of the last layer",
          "[J29][J30]") {
  Graph graph = parse_test_graph(kHostGraph);
  CHECK(tag_for_offload(graph, 0) == "3 of 3 values that could be are kept on the host, 64.00 KiB");
  CHECK(print_tags(graph) == "mm MUST_CPU_OFFLOAD\nbig MUST_CPU_OFFLOAD\nexp MUST_CPU_OFFLOAD\n");

  std::string large(kHostGraph);
  for (std::size_t at = 0; (at = large.find("128, 64", at)) != large.npos;)
    large.replace(at, 7, "49152, 4096");
  graph = parse_test_graph(large);
  CHECK(tag_for_offload(graph, 1) == "3 of 3 values that could be are kept on the host, 768.03 MiB");
}

TEST_CASE("loads stand as many layers ahead as prefetch says, or in front of all of backward",
          "[J32][J33][J34]") {
  Graph tagged = parse_test_graph(kHostGraph);
  tag_for_offload(tagged, 0);
  const auto order_of = [&](const CpuOffloadOptions& options) {
    const Graph graph = cpu_offload(tagged, options).graph;
    std::string names;
    for (NodeId id : graph.step().order) names += fmt::format("{} ", graph.text(graph.step().nodes[id].name));
    return names;
  };
  CHECK(order_of({.prefetch = 0, .defer = 0}) ==
        "x mm offload_default big offload_default_1 wait_tensor_default_2 t small unread "
        "wait_tensor_default exp offload_default_2 neg wait_tensor_default_4 g2 reload_default_2 "
        "wait_tensor_default_5 g1 s c reload_default_1 wait_tensor_default_3 b reload_default "
        "wait_tensor_default_1 t_default g0 output ");
  CHECK(order_of({.prefetch = 1, .defer = 1}) ==
        "x mm offload_default big offload_default_1 t small unread exp offload_default_2 "
        "wait_tensor_default_2 wait_tensor_default neg wait_tensor_default_4 reload_default_2 g2 "
        "wait_tensor_default_5 reload_default_1 reload_default g1 s c wait_tensor_default_3 b "
        "wait_tensor_default_1 t_default g0 output ");
  CHECK(order_of({.prefetch = 2, .defer = 0}) ==
        "x mm offload_default big offload_default_1 wait_tensor_default_2 t small unread "
        "wait_tensor_default exp offload_default_2 neg wait_tensor_default_4 reload_default_2 "
        "reload_default_1 reload_default g2 wait_tensor_default_5 g1 s c wait_tensor_default_3 b "
        "wait_tensor_default_1 t_default g0 output ");
  CHECK(order_of({.prefetch = 9, .defer = 9}) ==
        "x mm offload_default big offload_default_1 t small unread exp offload_default_2 neg "
        "wait_tensor_default_4 wait_tensor_default_2 wait_tensor_default reload_default_2 "
        "reload_default_1 reload_default g2 wait_tensor_default_5 g1 s c wait_tensor_default_3 b "
        "wait_tensor_default_1 t_default g0 output ");
}

}  // namespace
}  // namespace epweave
