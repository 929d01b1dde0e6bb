// Faults in parts of FlexAttention that take the keys of the parts before theirs, too.
#include "compare/rewrite/prefix_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "analysis/flex_attention.h"
#include "compare/rewrite/run_passes_test.h"
#include "compare/rewrite/verify_rewrite.h"
#include "ir/text/text.h"
#include "ops/op.h"
#include "ops/rebind.h"

namespace epweave {
namespace {

constexpr std::string_view kFlex = R"(epweave text 1
device cpu
symbol u0 range=[2, 64] hint=12 unbacked

graph
  %x = placeholder : f32[1, 2, u0, 4] role=user which=x
  %tokens = placeholder : i64[u0] role=user which=tokens
  %g = placeholder : f32[1, 2, u0, 4] role=user which=g
  %kn = placeholder : i32[1, 1, 6] role=user which=kv_num_blocks
  %ki = placeholder : i32[1, 1, 6, 6] role=user which=kv_indices
  %qn = placeholder : i32[1, 1, 6] role=user which=q_num_blocks
  %qi = placeholder : i32[1, 1, 6, 6] role=user which=q_indices
  %n = aten.sym_size.int(%tokens, 0) : SymInt(u0)
  %score = get_attr attr=graph(score) @layers.0
  %mask = get_attr attr=graph(mask) @layers.0
  %q = aten.sin.default(%x) : f32[1, 2, u0, 4] @layers.0
  %k = aten.cos.default(%x) : f32[1, 2, u0, 4] @layers.0
  %v = aten.exp.default(%x) : f32[1, 2, u0, 4] @layers.0
  %flex = higher_order.flex_attention(%q, %k, %v, %score, (%n, %n, %kn, %ki, None, None, %qn, %qi, None, None, 2, 2, %mask), 0.5, {}, (), ()) : (f32[1, 2, u0, 4], f32[1, 2, u0], f32[1, 2, u0]) @layers.0
  %out = operator.getitem(%flex, 0) : f32[1, 2, u0, 4] @layers.0
  %lse = operator.getitem(%flex, 1) : f32[1, 2, u0] @layers.0
  %fw = get_attr attr=graph(score)
  %joint = get_attr attr=graph(joint)
  %bwmask = get_attr attr=graph(mask)
  %flexb = higher_order.flex_attention_backward(%q, %k, %v, %out, %lse, %g, None, %fw, %joint, (%n, %n, %kn, %ki, None, None, %qn, %qi, None, None, 2, 2, %bwmask), 0.5, {}, (), ()) : (f32[1, 2, u0, 4], f32[1, 2, u0, 4], f32[1, 2, u0, 4], ()) @layers.0 bwd
  %gq = operator.getitem(%flexb, 0) : f32[1, 2, u0, 4] @layers.0 bwd
  %gk = operator.getitem(%flexb, 1) : f32[1, 2, u0, 4] @layers.0 bwd
  %gv = operator.getitem(%flexb, 2) : f32[1, 2, u0, 4] @layers.0 bwd
  %gkv = aten.add.Tensor(%gk, %gv) : f32[1, 2, u0, 4] @layers.0 bwd
  %gx = aten.add.Tensor(%gq, %gkv) : f32[1, 2, u0, 4] @layers.0 bwd
  output([%out, %gx])

graph score
  %s = placeholder : f32[]
  %b = placeholder : i32[]
  %h = placeholder : i32[]
  %q_idx = placeholder : i32[]
  %k_idx = placeholder : i32[]
  output(%s)

graph joint
  %s = placeholder : f32[]
  %b = placeholder : i32[]
  %h = placeholder : i32[]
  %q_idx = placeholder : i32[]
  %k_idx = placeholder : i32[]
  %gs = placeholder : f32[]
  output([%gs, None, None, None, None])

graph mask
  %b = placeholder : i32[]
  %h = placeholder : i32[]
  %q_idx = placeholder : i32[]
  %k_idx = placeholder : i32[]
  %causal = aten.ge.Tensor(%q_idx, %k_idx) : b8[]
  output(%causal)
)";

NodeId find(const Graph& graph, std::string_view name) {
  for (NodeId id : graph.step().order)
    if (graph.text(graph.step().nodes[id].name) == name) return id;
  FAIL("there is no node " << name);
  return {};
}

using KeyFault = std::function<void(Graph&)>;

// Gives a call another node, or number, for an argument.
KeyFault take(std::string_view call, std::size_t param, std::string_view value) {
  return [=](Graph& g) {
    rebind(*g.context, g.step().nodes[find(g, call)], {.param = param, .value = Arg::node(find(g, value))});
  };
}
KeyFault take(std::string_view call, std::size_t param, Arg value) {
  return
      [=](Graph& g) { rebind(*g.context, g.step().nodes[find(g, call)], {.param = param, .value = value}); };
}
// Gives a cat other operands.
KeyFault join(std::string_view cat, std::vector<std::string_view> values) {
  return [=](Graph& g) {
    std::vector<Arg> items;
    for (const std::string_view value : values) items.push_back(Arg::node(find(g, value)));
    rebind(*g.context, g.step().nodes[find(g, cat)],
           {.param = 0, .value = g.context->args.add_tree(ArgKind::kList, items)});
  };
}
// Gives a call another field of its mask.
KeyFault take_field(std::string_view call, std::size_t param, std::size_t field, std::string_view value) {
  return [=](Graph& g) {
    Node& node = g.step().nodes[find(g, call)];
    const auto fields = g.context->args.children(g.context->args[node.args][param]);
    std::vector<Arg> changed(fields.begin(), fields.end());
    changed[field] = Arg::node(find(g, value));
    rebind(*g.context, node, {.param = param, .value = g.context->args.add_tree(ArgKind::kTuple, changed)});
  };
}

TEST_CASE("parts that take keys of the parts before are proved") {
  const Graph graph = parse_text(kFlex, "flex");
  for (const char* parts : {"parts=2", "parts=3", "parts=6", "sizes=[4,6,2]"})
    for (const char* then : {"", ",dce,concretize"}) {
      const std::string pipeline =
          fmt::format("chunk{{roots=layers.*,dense=true,attention=prefix,{}}}{}", parts, then);
      INFO(pipeline);
      const RewriteReport report = verify_rewrite(graph, rewrite(graph, pipeline));
      CHECK(report.violations.empty());
      REQUIRE(report.outputs.size() == 2);
      CHECK(report.outputs[0].numerics == Numerics::kChunkEqual);
      CHECK(report.outputs[1].numerics == Numerics::kSumOrder);
    }
}

TEST_CASE("faults in keys of the parts before and in their gradients are found") {
  const Graph graph = parse_text(kFlex, "flex");
  const Graph sound = rewrite(graph, "chunk{roots=layers.*,dense=true,parts=3,attention=prefix}");
  const std::pair<const char*, KeyFault> faults[] = {
      {"keys of the parts before alone", take("flex_chunk2", 1, "k_prefix_chunk1")},
      {"keys of part 1 alone", take("flex_chunk1", 1, "k_chunk1")},
      {"keys of the next part, too", take("flex_chunk1", 1, "k_prefix_chunk2")},
      {"part 0 with keys of part 1", take("flex_chunk0", 1, "k_prefix_chunk1")},
      {"values for keys", take("flex_chunk1", 1, "v_prefix_chunk1")},
      {"keys in another order", join("k_prefix_chunk1", {"k_chunk1", "k_chunk0"})},
      {"a part of the keys twice", join("k_prefix_chunk2", {"k_chunk0", "k_chunk0", "k_chunk2"})},
      {"queries for keys", join("k_prefix_chunk1", {"q_chunk0", "k_chunk1"})},
      {"keys joined along the heads", take("k_prefix_chunk1", 1, Arg::integer(1))},
      {"the length of all keys", take_field("flex_chunk1", 4, 1, "n")},
      {"the mask of the whole", take_field("flex_chunk1", 4, 12, "mask")},
      {"tables of the whole", take_field("flex_chunk1", 4, 3, "ki")},
      {"tables of another part", take_field("flex_chunk1", 4, 3, "ki_rows_chunk2")},
      {"a summand of the keys left out", take("gk_chunk1", 1, "gk_chunk2")},
      {"a summand of the values for one of the keys", take("gk_chunk1", 0, "gv_summands_chunk2_1")},
      {"a summand of another part's rows", take("gk_chunk1", 0, "gk_summands_chunk2_0")},
      {"a summand twice", take("gk_sum1_chunk0", 1, "gk_summands_chunk2_0")},
      {"another call's summand", take("gk_summands_chunk2", 0, "flexb_chunk1")},
      {"a split of other rows", take("gk_summands_chunk1_split", 2, Arg::integer(1))},
  };
  for (const auto& [what, make] : faults) {
    INFO(what);
    Graph broken = sound;
    make(broken);
    CHECK_FALSE(verify_rewrite(graph, broken).violations.empty());
  }
}

TEST_CASE("a mask that shows keys behind the query is no reason to leave them out") {
  Graph graph = parse_text(kFlex, "flex");
  Graph parts = rewrite(graph, "chunk{roots=layers.*,dense=true,parts=3,attention=prefix}");
  for (Graph* g : {&graph, &parts})
    for (Body& body : g->bodies)
      for (Node& node : body.nodes)
        if (g->text(node.name) == "causal") {
          node.target = g->intern("aten.le.Tensor");
          resolve_op(*g->context, node);
        }
  const std::vector<Violation> found = verify_rewrite(graph, parts).violations;
  CHECK(std::ranges::count(
            found,
            "takes the keys up to its part's, and nothing shows that the mask mask hides from each "
            "query the keys behind it",
            &Violation::message) == 6);
  CHECK(found.size() == 6);
}

TEST_CASE("masks that hide from each query the keys behind it") {
  struct Mask {
    const char* text;
    bool is_causal;
  };
  const Mask masks[] = {
      {"%m = aten.ge.Tensor(%q_idx, %k_idx) : b8[]", true},
      {"%m = aten.gt.Tensor(%q_idx, %k_idx) : b8[]", true},
      {"%m = aten.le.Tensor(%k_idx, %q_idx) : b8[]", true},
      {"%m = aten.lt.Tensor(%k_idx, %q_idx) : b8[]", true},
      {"%m = aten.ge.Tensor(%k_idx, %q_idx) : b8[]", false},
      {"%m = aten.le.Tensor(%q_idx, %k_idx) : b8[]", false},
      {"%m = aten.ge.Tensor(%q_idx, %h) : b8[]", false},
      {"%m = aten.eq.Tensor(%q_idx, %k_idx) : b8[]", false},
      {"%c = aten.ge.Tensor(%q_idx, %k_idx) : b8[]\n  %m = aten.bitwise_not.default(%c) : b8[]", false},
      {"%c = aten.ge.Tensor(%q_idx, %k_idx) : b8[]\n  %e = aten.eq.Tensor(%h, %b) : b8[]\n"
       "  %m = aten.bitwise_or.Tensor(%e, %c) : b8[]",
       false},
      {"%c = aten.ge.Tensor(%q_idx, %k_idx) : b8[]\n  %e = aten.eq.Tensor(%h, %b) : b8[]\n"
       "  %m = aten.logical_and.default(%e, %c) : b8[]",
       true},
      {"%c = aten.ge.Tensor(%q_idx, %k_idx) : b8[]\n  %e = aten.lt.Tensor(%k_idx, %q_idx) : b8[]\n"
       "  %m = aten.bitwise_or.Tensor(%e, %c) : b8[]",
       true},
      {"%d = aten.sub.Tensor(%q_idx, %k_idx) : i32[]\n  %m = aten.lt.Scalar(%d, 4) : b8[]", false},
  };
  for (const Mask& mask : masks) {
    INFO(mask.text);
    std::string text(kFlex);
    const std::string_view causal = "%causal = aten.ge.Tensor(%q_idx, %k_idx) : b8[]\n  output(%causal)";
    text.replace(text.find(causal), causal.size(), fmt::format("{}\n  output(%m)", mask.text));
    const Graph graph = parse_text(text, "flex");
    for (NodeId id : graph.step().order)
      if (const auto call = FlexCall::read(graph, graph.step().nodes[id]))
        CHECK(hides_later_keys(*graph.context, call->functions.back()) == mask.is_causal);
  }
}

}  // namespace
}  // namespace epweave
