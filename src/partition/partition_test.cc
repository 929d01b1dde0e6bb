#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>

#include "analysis/rank_literals.h"
#include "analysis/seeds.h"
#include "analysis/verify.h"
#include "compare/rewrite/verify_halves.h"
#include "cost/memory.h"
#include "io/file.h"
#include "ir/text/text.h"
#include "ops/op.h"
#include "partition/budget_steps.h"
#include "partition/exact_cut.h"
#include "partition/halves.h"
#include "partition/knapsack.h"

namespace epweave {
namespace {

Graph parse(const std::string& nodes) {
  return parse_text(fmt::format("epweave text 1\ndevice cuda:0\n{}", nodes), "test");
}

std::string names_of(const Graph& graph, const std::vector<NodeId>& ids) {
  std::string text;
  for (NodeId id : ids)
    text += fmt::format("{}{}", text.empty() ? "" : " ", graph.text(graph.step().nodes[id].name));
  return text;
}

std::string recomputed_of(const Graph& graph, const Cut& cut) {
  std::vector<NodeId> ids;
  for (NodeId id : graph.step().order)
    if (cut.recomputes(id)) ids.push_back(id);
  return names_of(graph, ids);
}

// A chain of a product, a relu and a product, with its backward.
const char* const kChain = R"(
output loss
output grad fqn=w

graph
  %x = placeholder : f32[64, 64]
  %w = placeholder : f32[64, 64]
  %mm = aten.mm.default(%x, %w) : f32[64, 64]
  %relu = aten.relu.default(%mm) : f32[64, 64]
  %mm_1 = aten.mm.default(%relu, %w) : f32[64, 64]
  %loss = aten.sum.default(%mm_1) : f32[]
  %ones_like = aten.ones_like.default(%loss) : f32[]
  %expand = aten.expand.default(%ones_like, [64, 64]) : f32[64, 64]{0, 0} bwd
  %mul = aten.mul.Tensor(%relu, %expand) : f32[64, 64] bwd
  %mm_2 = aten.mul.Tensor(%mm, %mul) : f32[64, 64] bwd
  output((%loss, %mm_2))
)";

TEST_CASE("PyTorch's cut saves the product and computes the relu again", "[J36]") {
  const Graph graph = merge_equal_calls(parse(kChain));
  const Joint joint = read_joint(graph);
  const Cut cut = cut_as_torch(graph, joint);
  CHECK(names_of(graph, joint.seeds) == "ones_like");
  CHECK(names_of(graph, cut.saved) == "mm");
  CHECK(recomputed_of(graph, cut) == "relu");
}

TEST_CASE("equal calls are merged, but for those whose memory is written") {
  const Graph graph = merge_equal_calls(parse(R"(
group g ranks=[0, 1]
output loss
output grad fqn=w

graph
  %x = placeholder : f32[64, 64]
  %w = placeholder : f32[64, 64]
  %relu = aten.relu.default(%x) : f32[64, 64]
  %relu_1 = aten.relu.default(%x) : f32[64, 64]
  %zeros = aten.zeros.default([64, 64]) : f32[64, 64]
  %zeros_1 = aten.zeros.default([64, 64]) : f32[64, 64]
  %add = aten.add_.Tensor(%zeros, %relu) : f32[64, 64]
  %sent = _c10d_functional.all_reduce.default(%relu_1, "sum", "g") : f32[64, 64]
  %sent_1 = _c10d_functional.all_reduce.default(%relu, "sum", "g") : f32[64, 64]
  %wait = _c10d_functional.wait_tensor.default(%sent) : f32[64, 64]
  %wait_1 = _c10d_functional.wait_tensor.default(%sent_1) : f32[64, 64]
  %mul = aten.mul.Tensor(%add, %wait) : f32[64, 64]
  %mul_1 = aten.mul.Tensor(%zeros_1, %wait_1) : f32[64, 64]
  %mm = aten.mm.default(%mul, %w) : f32[64, 64]
  %mm_1 = aten.mm.default(%mul_1, %mm) : f32[64, 64]
  %loss = aten.sum.default(%mm_1) : f32[]
  %ones_like = aten.ones_like.default(%loss) : f32[]
  %expand = aten.expand.default(%ones_like, [64, 64]) : f32[64, 64]{0, 0} bwd
  %mm_2 = aten.mm.default(%mul, %expand) : f32[64, 64] bwd
  output((%loss, %mm_2))
)"));
  std::vector<NodeId> calls;
  for (NodeId id : graph.step().order)
    if (graph.step().nodes[id].kind == NodeKind::kCall) calls.push_back(id);
  CHECK(names_of(graph, calls) ==
        "relu zeros zeros_1 add sent sent_1 wait wait_1 mul mul_1 mm mm_1 loss ones_like expand mm_2");
}

TEST_CASE("what only the loss needs is not merged with what backward needs", "[J46]") {
  const Graph graph = merge_equal_calls(parse(R"(
output loss
output grad fqn=w

graph
  %x = placeholder : f32[64, 64]
  %w = placeholder : f32[64, 64]
  %exp = aten.exp.default(%x) : f32[64, 64]
  %mm = aten.mm.default(%exp, %w) : f32[64, 64]
  %loss = aten.sum.default(%mm) : f32[]
  %ones_like = aten.ones_like.default(%loss) : f32[]
  %exp_1 = aten.exp.default(%x) : f32[64, 64] bwd
  %exp_2 = aten.exp.default(%x) : f32[64, 64] bwd
  %mul = aten.mul.Tensor(%exp_1, %ones_like) : f32[64, 64] bwd
  %mul_1 = aten.mul.Tensor(%exp_2, %mul) : f32[64, 64] bwd
  output((%loss, %mul_1))
)"));
  CHECK(names_of(graph, graph.step().order) == "x w exp mm loss ones_like exp_1 mul mul_1 output");
  const Joint joint = read_joint(graph);
  CHECK(names_of(graph, cut_as_torch(graph, joint).saved) == "x");
}

// What is saved and done again of a joint graph: PyTorch's cut, then the exact one where no product
// is done again. Both halves are proved.
std::string cuts_of(const std::string& nodes) {
  const Graph graph = merge_equal_calls(parse(nodes));
  const Joint joint = read_joint(graph);
  const ValueCosts costs = price_values(graph, joint, Cluster{});
  ExactCuts cuts(graph, joint, costs, {.keeps_heavy = true});
  std::string text;
  for (const Cut& cut : {cut_as_torch(graph, joint), cuts.cut_at_price(Cluster{}.pcie).cut}) {
    const Halves halves = split_joint(graph, joint, cut);
    const RewriteReport report = verify_halves(graph, halves.forward, halves.backward);
    if (!report.violations.empty()) return report.violations.front().message;
    text += fmt::format("{} | {}, {} B\n", names_of(graph, cut.saved), recomputed_of(graph, cut),
                        add_up(graph, cut, costs).bytes);
  }
  return text;
}

// Forward, its loss and seed, and backward of a graph of %x and %w.
std::string joint_text(std::string_view forward, std::string_view backward) {
  return fmt::format(R"(
group g ranks=[0, 1]
symbol s0 hint=64
output loss
output grad fqn=w

graph
  %x = placeholder : f32[64, 64]
  %w = placeholder : f32[64, 64] role=parameter fqn=w
{}
  %loss = aten.sum.default(%last) : f32[]
  %one = aten.ones_like.default(%loss) : f32[]
{}
  output((%loss, %grad))
)",
                     forward, backward);
}

TEST_CASE("of tuples the elements are saved, of views and their base one storage", "[J38][J42]") {
  CHECK(cuts_of(joint_text(R"(
  %mm = aten.mm.default(%x, %w) : f32[64, 64]
  %sort = aten.sort.default(%mm) : (f32[64, 64], i64[64, 64])
  %last = operator.getitem(%sort, 0) : f32[64, 64]
  %index = operator.getitem(%sort, 1) : i64[64, 64])",
                           R"(
  %d = aten.mul.Tensor(%last, %one) : f32[64, 64] bwd
  %grad = aten.gather.default(%d, 1, %index) : f32[64, 64] bwd)")) ==
        "last index | , 49152 B\nlast index | , 49152 B\n");
  CHECK(cuts_of(joint_text(R"(
  %mm = aten.mm.default(%x, %w) : f32[64, 64]
  %t = aten.t.default(%mm) : f32[64, 64]{1, 64}
  %last = aten.mm.default(%t, %w) : f32[64, 64])",
                           R"(
  %d = aten.mul.Tensor(%t, %one) : f32[64, 64]{1, 64} bwd
  %grad = aten.mm.default(%d, %mm) : f32[64, 64] bwd)")) == "mm | t, 16384 B\nmm | t, 16384 B\n");
}

TEST_CASE("of a list in a tuple the elements are saved, each a storage", "[J42]") {
  CHECK(cuts_of(joint_text(R"(
  %f = symm_mem.fused_all_gather_matmul.default(%x, [%w, %w], 0, "g") : (f32[128, 64], [f32[128, 64], f32[128, 64]])
  %list = operator.getitem(%f, 1) : [f32[128, 64], f32[128, 64]]
  %p = operator.getitem(%list, 0) : f32[128, 64]
  %last = operator.getitem(%list, 1) : f32[128, 64])",
                           R"(
  %d = aten.mul.Tensor(%p, %one) : f32[128, 64] bwd
  %grad = aten.mul.Tensor(%d, %last) : f32[128, 64] bwd)")) == "p last | , 65536 B\np last | , 65536 B\n");
}

// Which calls read a number in each half, of a step one of whose calls mentions a number that it
// does not take.
std::string binders_of(std::string_view in_forward, std::string_view in_backward) {
  const Graph graph = parse(fmt::format(R"(
symbol u0 range=[2, 64] hint=4 unbacked
symbol u1 range=[2, 64] hint=4 unbacked
output loss
output grad fqn=w

graph
  %x = placeholder : f32[64, 64]
  %c = placeholder : i64[]
  %w = placeholder : f32[64, 64] role=parameter fqn=w
  %n = aten._local_scalar_dense.default(%c) : SymInt(u0) bind(u0)
  %m = aten._local_scalar_dense.default(%c) : SymInt(u1) bind(u1)
  %s = aten.slice.Tensor(%x, 0, 0, %n) : f32[u0, 64]
  %mm = aten.mm.default(%s, %w) : f32[u0, 64]
  %sin = aten.sin.default(%mm) : f32[{}, 64]
  %loss = aten.sum.default(%sin) : f32[]
  %one = aten.ones_like.default(%loss) : f32[]
  %d = aten.mul.Tensor(%mm, %one) : f32[{}, 64] bwd
  %grad = aten.sum.default(%d) : f32[] bwd
  output((%loss, %grad))
)",
                                        in_forward, in_backward));
  const Joint joint = read_joint(graph);
  const Halves halves = split_joint(graph, joint, cut_by_tags(graph, joint));
  const RewriteReport report = verify_halves(graph, halves.forward, halves.backward);
  if (!report.violations.empty()) return report.violations.front().message;
  std::string text;
  for (const Graph* half : {&halves.forward, &halves.backward}) {
    std::vector<NodeId> binders;
    for (NodeId id : half->step().order)
      if (const NodeExtra* extra = half->step().nodes[id].extra; extra != nullptr && !extra->bindings.empty())
        binders.push_back(id);
    text += names_of(*half, binders) + "; ";
  }
  return text;
}

TEST_CASE("a half has what binds the symbols that its calls mention") {
  CHECK(binders_of("u0", "u0") == "n; ; ");
  CHECK(binders_of("u1", "u0") == "n m; ; ");
  CHECK(binders_of("u0", "u1") == "n m; m; ");
}

TEST_CASE("collectives and draws are saved", "[J40][J45]") {
  CHECK(cuts_of(joint_text(R"(
  %sent = _c10d_functional.all_reduce.default(%x, "sum", "g") : f32[64, 64]
  %wait = _c10d_functional.wait_tensor.default(%sent) : f32[64, 64]
  %last = aten.relu.default(%wait) : f32[64, 64])",
                           R"(
  %grad = aten.mul.Tensor(%last, %one) : f32[64, 64] bwd)")) == "wait | last, 16384 B\nlast | , 16384 B\n");
  CHECK(cuts_of(joint_text(R"(
  %rand = aten.rand_like.default(%x) : f32[64, 64]
  %exp = aten.exp.default(%rand) : f32[64, 64]
  %last = aten.mm.default(%exp, %w) : f32[64, 64])",
                           R"(
  %d = aten.mul.Tensor(%rand, %one) : f32[64, 64] bwd
  %grad = aten.mul.Tensor(%exp, %d) : f32[64, 64] bwd)")) == "rand | exp, 16384 B\nrand exp | , 32768 B\n");
}

TEST_CASE("a gradient that is a forward value is returned by backward", "[J43]") {
  CHECK(cuts_of(joint_text(R"(
  %exp = aten.exp.default(%x) : f32[64, 64]
  %grad = aten.sin.default(%exp) : f32[64, 64]
  %last = aten.mm.default(%exp, %grad) : f32[64, 64])",
                           R"(
  %d = aten.mul.Tensor(%exp, %one) : f32[64, 64] bwd)")) == "exp grad | , 32768 B\nexp grad | , 32768 B\n");
}

TEST_CASE("what reads storage that is written later is saved", "[J41]") {
  CHECK(cuts_of(joint_text(R"(
  %exp = aten.exp.default(%w) : f32[64, 64]
  %add_ = aten.add_.Tensor(%w, %x) : f32[64, 64]
  %last = aten.mm.default(%exp, %add_) : f32[64, 64])",
                           R"(
  %grad = aten.mul.Tensor(%exp, %one) : f32[64, 64] bwd)")) == "exp | , 16384 B\nexp | , 16384 B\n");
  // A mutated copy: done again, the product would read what was written.
  CHECK(cuts_of(joint_text(R"(
  %sin = aten.sin.default(%x) : f32[64, 64]
  %exp = aten.exp.default(%sin) : f32[64, 64]
  %add_ = aten.add_.Tensor(%sin, %exp) : f32[64, 64]
  %last = aten.mm.default(%add_, %w) : f32[64, 64])",
                           R"(
  %d = aten.mul.Tensor(%add_, %one) : f32[64, 64] bwd
  %grad = aten.mul.Tensor(%exp, %d) : f32[64, 64] bwd)")) == "exp add_ | , 32768 B\nexp add_ | , 32768 B\n");
}

TEST_CASE("halves are proved, and every damage to them is found", "[J50]") {
  const Graph graph = parse(kChain);
  const Joint joint = read_joint(graph);
  const Halves halves = split_joint(graph, joint, cut_as_torch(graph, joint));
  CHECK(verify_halves(graph, halves.forward, halves.backward).violations.empty());

  const auto is_found = [&](const auto& damage) {
    Halves damaged = halves;
    damage(damaged);
    return !verify_halves(graph, damaged.forward, damaged.backward).violations.empty();
  };
  const auto node_of = [](Graph& half, std::string_view name) -> Node& {
    for (NodeId id : half.step().order)
      if (half.text(half.step().nodes[id].name) == name) return half.step().nodes[id];
    throw CheckError("no such node");
  };
  const auto id_of = [](const Graph& half, std::string_view name) {
    for (NodeId id : half.step().order)
      if (half.text(half.step().nodes[id].name) == name) return id;
    throw CheckError("no such node");
  };
  const auto retarget = [&](Node& node, std::string_view target) {
    node.target = graph.intern(target);
    resolve_op(*graph.context, node);
  };
  const auto redirect = [&](Graph& half, std::string_view name, std::string_view from, std::string_view to) {
    Node& node = node_of(half, name);
    const NodeId old_value = id_of(half, from), value = id_of(half, to);
    node.args = graph.context->args.map(
        node.args, [&](Arg arg) { return arg == Arg::node(old_value) ? Arg::node(value) : arg; });
  };
  CHECK(is_found([&](Halves& h) { retarget(node_of(h.backward, "relu"), "aten.sigmoid.default"); }));
  CHECK(is_found([&](Halves& h) { retarget(node_of(h.forward, "relu"), "aten.sigmoid.default"); }));
  CHECK(
      is_found([&](Halves& h) { h.backward.inputs[0].name = graph.intern("relu"); }));  // another saved value
  CHECK(is_found([&](Halves& h) { h.forward.outputs.back().fqn = graph.intern("relu"); }));  // dropped
  CHECK(is_found([&](Halves& h) { redirect(h.forward, "output", "mm", "relu"); }));          // swapped
  CHECK(is_found([&](Halves& h) { redirect(h.backward, "relu", "mm", "ones_like"); }));      // wrong copy
  CHECK(is_found([&](Halves& h) { redirect(h.backward, "mul", "relu", "mm"); }));            // skips the copy
  CHECK(is_found([&](Halves& h) { redirect(h.backward, "output", "mm_2", "mul"); }));  // another gradient
  CHECK(is_found([&](Halves& h) { h.backward.outputs[0].fqn = graph.intern("v"); }));  // of another parameter
  CHECK(is_found([&](Halves& h) { h.backward.inputs[1].name = graph.intern("loss"); }));  // another seed
  CHECK(is_found([&](Halves& h) {
    std::swap(h.forward.inputs[0], h.forward.inputs[1]);
    h.forward.inputs[0].role = graph.intern("x");
  }));
  CHECK(is_found([&](Halves& h) { node_of(h.backward, "mm").type = node_of(h.backward, "ones_like").type; }));
}

TEST_CASE("tags: what is tagged is computed again", "[J37]") {
  Graph graph = parse(kChain);
  const auto tag = [&](std::string_view name, std::string_view word) {
    for (NodeId id : graph.step().order)
      if (graph.text(graph.step().nodes[id].name) == name)
        graph.step().nodes[id].recompute = graph.intern(word);
  };
  tag("mm", "MUST_RECOMPUTE");
  tag("relu", "PREFER_RECOMPUTE");
  const Joint joint = read_joint(graph);
  const Cut cut = cut_by_tags(graph, joint);
  CHECK(names_of(graph, cut.saved) == "x w");
  CHECK(recomputed_of(graph, cut) == "mm relu");
  const Halves halves = split_joint(graph, joint, cut);
  CHECK(verify_halves(graph, halves.forward, halves.backward).violations.empty());
}

// Whatever it is tagged: the symbol has one number.
TEST_CASE("what computes the number of a symbol runs once") {
  const Graph graph = parse(R"(
symbol u0 range=[0, 64] unbacked
output loss
output grad fqn=w

graph
  %x = placeholder : f32[64]
  %w = placeholder : f32[64, 64]
  %nz = aten.nonzero.default(%x) : i64[u0, 1]{1, u0} recompute=PREFER_RECOMPUTE bind(u0, {"kind": "CallMethodKey", "name": "size"}, {"kind": "SequenceKey", "idx": 0})
  %rows = aten.select.int(%nz, 1, 0) : i64[u0] recompute=PREFER_RECOMPUTE
  %picked = aten.index.Tensor(%w, [%rows]) : f32[u0, 64] recompute=PREFER_RECOMPUTE
  %relu = aten.relu.default(%picked) : f32[u0, 64] recompute=PREFER_RECOMPUTE
  %loss = aten.sum.default(%relu) : f32[]
  %one = aten.ones_like.default(%loss) : f32[]
  %d = aten.mul.Tensor(%relu, %one) : f32[u0, 64] bwd
  %zero = aten.zeros_like.default(%w) : f32[64, 64] bwd
  %g = aten.index_put.default(%zero, [%rows], %d, True) : f32[64, 64] bwd
  output((%loss, %g))
)");
  const Joint joint = read_joint(graph);
  for (const Cut& cut : {cut_as_torch(graph, joint), cut_by_tags(graph, joint)}) {
    const Halves halves = split_joint(graph, joint, cut);
    CHECK(verify_halves(graph, halves.forward, halves.backward).violations.empty());
  }
}

// Names, targets and arguments of a half.
std::string print_half(Graph half) {
  Body& body = half.step();
  std::string text = "\n";
  for (NodeId id : body.order) {
    Node& node = body.nodes[id];
    node.provenance = {};
    node.type = {};
    node.backward = {};
    std::string line = print_node(half, body, id, TextMode::kFull);
    while (!line.empty() && line.back() == '\n') line.pop_back();
    text += line + "\n";
  }
  return text;
}

std::string split_by_tags(const Graph& graph) {
  const Joint joint = read_joint(graph);
  const Halves halves = split_joint(graph, joint, cut_by_tags(graph, joint));
  const RewriteReport report = verify_halves(graph, halves.forward, halves.backward);
  if (!report.violations.empty()) return report.violations.front().message;
  return print_half(halves.forward) + print_half(halves.backward);
}

TEST_CASE("symbolic integers are saved, symbolic floats computed again", "[J39]") {
  const std::string forward = R"(
  %mm = aten.mm.default(%x, %w) : f32[64, 64]
  %n = aten.sym_size.int(%mm, 0) : SymInt(s0)
  %m = operator.add(%n, 1) : SymInt(s0 + 1)
  %f = operator.truediv(%m, 3) : SymFloat(IntTrueDiv(s0 + 1, 3))
  %h = operator.truediv(%f, 2.0) : SymFloat(FloatTrueDiv(IntTrueDiv(s0 + 1, 3), 2.0))
  %last = aten.mul.Tensor(%mm, %h) : f32[64, 64])",
                    backward = R"(
  %d = aten.expand.default(%one, [%n, 64]) : f32[64, 64]{0, 0} bwd
  %grad = aten.mul.Tensor(%d, %h) : f32[64, 64] bwd)";
  CHECK(cuts_of(joint_text(forward, backward)) == "n | m f h, 0 B\nn m | f h, 0 B\n");
  const Graph graph = parse(joint_text(forward, backward));
  const Cut cut = cut_by_tags(graph, read_joint(graph));
  CHECK(names_of(graph, cut.saved) == "n m");
  CHECK(recomputed_of(graph, cut) == "f h");
}

constexpr std::string_view kGatheredAgain = R"(
group g ranks=[0, 1]
output loss
output grad fqn=w

graph
  %x = placeholder : f32[64, 64]
  %w = placeholder : f32[32, 64] role=parameter fqn=w
  %sent = _c10d_functional.all_gather_into_tensor.default(%x, 2, "g") : f32[128, 64]
  %all = _c10d_functional.wait_tensor.default(%sent) : f32[128, 64]
  %loss = aten.sum.default(%all) : f32[]
  %one = aten.ones_like.default(%loss) : f32[]
  %sent_1 = _c10d_functional.all_gather_into_tensor.default(%x, 2, "g") : f32[128, 64] bwd
  %all_1 = _c10d_functional.wait_tensor.default(%sent_1) : f32[128, 64] bwd
  %square = aten.mm.default(%all_1, %x) : f32[128, 64] bwd
  %d = aten.mul.Tensor({}, %one) : f32[128, 64] bwd
  %grad = aten.slice.Tensor(%d, 0, 0, 32) : f32[32, 64] bwd
  output((%loss, %grad))
)";

TEST_CASE("what a step exchanges again in backward stays there", "[J37]") {
  const Graph graph = parse(fmt::format(kGatheredAgain, "%square"));
  const Joint joint = read_joint(graph);
  const ValueCosts costs = price_values(graph, joint, Cluster{});
  for (const Cut& cut :
       {cut_by_tags(graph, joint), ExactCuts(graph, joint, costs, {.keeps_heavy = true}).fastest().cut}) {
    CHECK(names_of(graph, cut.saved) == "x");
    CHECK(recomputed_of(graph, cut) == "sent_1 all_1 square");
    CHECK(add_up(graph, cut, costs).seconds == 0);
    const Halves halves = split_joint(graph, joint, cut);
    CHECK(verify_halves(graph, halves.forward, halves.backward).violations.empty());
  }
  // PyTorch's partitioner keeps each wait in forward.
  const Joint of_torch = read_joint(graph, Waits::kAll);
  CHECK(names_of(graph, cut_by_tags(graph, of_torch).saved) == "x all_1");
}

// What is exchanged again, and a size that is read of the launch: {} is what reads the size.
constexpr std::string_view kSizedAgain = R"(
group g ranks=[0, 1]
symbol s0 range=[2, 64] hint=4 backed
output loss
output grad fqn=w

graph
  %x = placeholder : f32[s0, 64]
  %w = placeholder : f32[2*s0, 64] role=parameter fqn=w
  %sent = _c10d_functional.all_gather_into_tensor.default(%x, 2, "g") : f32[2*s0, 64]
  %all = _c10d_functional.wait_tensor.default(%sent) : f32[2*s0, 64]
  %loss = aten.sum.default(%all) : f32[]
  %one = aten.ones_like.default(%loss) : f32[]
  %sent_1 = _c10d_functional.all_gather_into_tensor.default(%x, 2, "g") : f32[2*s0, 64] bwd
  %view = aten.view.default(%sent_1, [-1, 32]) : f32[4*s0, 32] bwd
  %n = aten.sym_size.int(%view, 0) : SymInt(4*s0) bwd
  %all_1 = _c10d_functional.wait_tensor.default(%sent_1) : f32[2*s0, 64] bwd
  %m = operator.floordiv(%n, 2) : SymInt(2*s0) bwd
  %more = {} : f32[2*s0, 64] bwd
  %sum = aten.add.Tensor(%all_1, %more) : f32[2*s0, 64] bwd
  %grad = aten.mul.Tensor(%sum, %one) : f32[2*s0, 64] bwd
  output((%loss, %grad))
)";

TEST_CASE("a size of what is exchanged again is read where that is launched", "[J37]") {
  const auto cuts_with = [](std::string_view more) {
    const Graph graph = parse(fmt::format(kSizedAgain, more));
    const Joint joint = read_joint(graph);
    const ValueCosts costs = price_values(graph, joint, Cluster{});
    ExactCuts exact(graph, joint, costs, {.keeps_heavy = true});
    std::string text = "\n";
    for (const Cut& cut : {cut_by_tags(graph, joint), exact.fastest().cut, exact.smallest().cut}) {
      const Halves halves = split_joint(graph, joint, cut);
      for (const Graph* half : {&halves.forward, &halves.backward})
        for (const Violation& violation : verify_graph(*half))
          text += print_violation(*half, violation) + "\n";
      for (const Violation& violation : verify_halves(graph, halves.forward, halves.backward).violations)
        text += violation.message + "\n";
      text += fmt::format("save {}; again ({})\n", names_of(graph, cut.saved), recomputed_of(graph, cut));
    }
    return text;
  };
  CHECK(cuts_with("aten.full.default([%m, 64], 1.0, dtype=f32, device=@cuda:0)") == R"(
save x; again (sent_1 view n all_1 m more sum)
save x; again (sent_1 view n all_1 m more sum)
save x; again (sent_1 view n all_1 m more sum)
)");
  // What draws is forward's, with all that it needs, and what is launched there is waited for.
  CHECK(cuts_with("aten.rand.default([%m, 64], dtype=f32, device=@cuda:0)") == R"(
save all_1 more; again (sum)
save sum; again ()
save sum; again ()
)");
}

TEST_CASE("a wait of backward that nothing reads is forward's", "[J37]") {
  const Graph graph = parse(fmt::format(kGatheredAgain, "%all"));
  const Joint joint = read_joint(graph);
  const Halves halves = split_joint(graph, joint, cut_by_tags(graph, joint));
  CHECK(verify_halves(graph, halves.forward, halves.backward).violations.empty());
}

TEST_CASE("where no gradient is computed all is forward's", "[J44]") {
  CHECK(split_by_tags(parse(R"(
output loss
output grad fqn=w

graph
  %x = placeholder : f32[8]
  %tangents_1 = placeholder : f32[8]
  %a = aten.neg.default(%x) : f32[8]
  %b = aten.exp.default(%a) : f32[8]
  output((%b, None))
)")) == R"(
%x = placeholder
%a = aten.neg.default(%x)
%b = aten.exp.default(%a)
output((%b,))

%tangents_1 = placeholder
output((None,))
)");
}

TEST_CASE("a pipeline stage is split as it stands", "[J52]") {
  Graph graph = parse(R"(
output activation
output grad fqn=w
output grad fqn=x
output grad fqn=x

graph
  %w = placeholder : f32[8, 8] role=parameter fqn=w
  %count = placeholder : f32[8] role=buffer fqn=count
  %x = placeholder : f32[8, 8] role=user which=x
  %mesh = placeholder role=user which=mesh
  %output_grad = placeholder : f32[8, 8] role=user which=output_grad
  %mm = aten.mm.default(%x, %w) : f32[8, 8]
  %sums = aten.sum.dim_IntList(%mm, [0]) : f32[8]
  %counted = aten.add_.Tensor(%count, %sums) : f32[8]
  %sort = aten.sort.default(%mm) : (f32[8, 8], i64[8, 8])
  %values = operator.getitem(%sort, 0) : f32[8, 8]
  %indices = operator.getitem(%sort, 1) : i64[8, 8]
  %kept = aten.zeros.default([8, 8], dtype=f32, device=@cuda:0, pin_memory=False) : f32[8, 8]
  %half = aten.slice.Tensor(%kept, 0, 0, 4) : f32[4, 8]
  %top = aten.slice.Tensor(%values, 0, 0, 4) : f32[4, 8]
  %filled = aten.copy_.default(%half, %top) : f32[4, 8]
  %y = aten.relu.default(%values) : f32[8, 8]
  %scaled = aten.mul.Tensor(%output_grad, %kept) : f32[8, 8] bwd
  %d = aten.gather.default(%scaled, 1, %indices) : f32[8, 8] bwd
  %xt = aten.t.default(%x) : f32[8, 8]{1, 8} bwd
  %dw = aten.mm.default(%xt, %d) : f32[8, 8] bwd
  %wt = aten.t.default(%w) : f32[8, 8]{1, 8} bwd
  %dx = aten.mm.default(%d, %wt) : f32[8, 8] bwd
  output((%y, %dw, %dx, %mesh))
)");
  const std::array<std::string, 1> tangents = {"output_grad"};
  mark_tangents(graph, tangents);
  // What is written in place stays in forward, though backward reads none of it.
  CHECK(split_by_tags(graph) == R"(
%w = placeholder
%count = placeholder
%x = placeholder
%mesh = placeholder
%mm = aten.mm.default(%x, %w)
%sums = aten.sum.dim_IntList(%mm, [0])
%counted = aten.add_.Tensor(%count, %sums)
%sort = aten.sort.default(%mm)
%values = operator.getitem(%sort, 0)
%indices = operator.getitem(%sort, 1)
%kept = aten.zeros.default([8, 8], dtype=f32, device=@cuda:0, pin_memory=False)
%half = aten.slice.Tensor(%kept, 0, 0, 4)
%top = aten.slice.Tensor(%values, 0, 0, 4)
%filled = aten.copy_.default(%half, %top)
%y = aten.relu.default(%values)
output((%y, %indices, %kept))

%w = placeholder
%x = placeholder
%mesh = placeholder
%indices = placeholder
%kept = placeholder
%output_grad = placeholder
%scaled = aten.mul.Tensor(%output_grad, %kept)
%d = aten.gather.default(%scaled, 1, %indices)
%xt = aten.t.default(%x)
%dw = aten.mm.default(%xt, %d)
%wt = aten.t.default(%w)
%dx = aten.mm.default(%d, %wt)
output((%dw, %dx, %mesh))
)");
}

TEST_CASE("a graph without backward is refused") {
  const Graph graph =
      parse("graph\n  %x = placeholder : f32[4]\n  %y = aten.relu.default(%x) : f32[4]\n  output((%y,))\n");
  CHECK_THROWS_AS(read_joint(graph), PassError);
}

TEST_CASE("a mesh that stands beside a gradient is no reason for having no cut") {
  const Graph graph = parse(R"(
output loss
output grad fqn=w
output grad fqn=w

graph
  %x = placeholder : f32[64, 64]
  %w = placeholder : f32[64, 64]
  %mesh = placeholder
  %mm = aten.mm.default(%x, %w) : f32[64, 64]
  %loss = aten.sum.default(%mm) : f32[]
  %ones_like = aten.ones_like.default(%loss) : f32[]
  %mul = aten.mul.Tensor(%mm, %ones_like) : f32[64, 64] bwd
  output((%loss, %mul, %mesh))
)");
  const Joint joint = read_joint(graph);
  const ValueCosts costs = price_values(graph, joint, Cluster{});
  ExactCuts cuts(graph, joint, costs, {.keeps_heavy = true});
  const BudgetCut cut = cuts.cut_at_price(1e9);
  CHECK(names_of(graph, cut.cut.saved) == "mesh mm");
  CHECK(cut.totals.bytes == 64 * 64 * 4);
}

// What each proved number must be, by the node's name.
std::map<StringId, std::string> list_rank_numbers(const Graph& graph) {
  std::map<StringId, std::string> found;
  for (const RankLiteral& literal : find_rank_literals(graph, 0).proved)
    found[graph.step().nodes[literal.node].name] = print_expression(graph, literal);
  return found;
}

TEST_CASE("numbers of one rank are proved in both halves", "[R7]") {
  const Graph graph = read_graph(
      fmt::format("{}/testdata/graphs/llama3_debug_fsdp2_tp2_coor.0_traced.epw.gz", EPWEAVE_SOURCE_DIR));
  const std::map<StringId, std::string> numbers = list_rank_numbers(graph);
  REQUIRE(numbers.size() == 51);
  const Joint joint = read_joint(graph);
  const ValueCosts costs = price_values(graph, joint, Cluster{});
  ExactCuts cuts(graph, joint, costs, {});
  const Cut nothing_again = cut_as_torch(graph, joint), all_again = cuts.cut_at(0).cut;
  for (const Cut* cut : {&nothing_again, &all_again}) {
    const Halves halves = split_joint(graph, joint, *cut);
    CHECK(verify_halves(graph, halves.forward, halves.backward).violations.empty());
    std::size_t in_halves = 0;
    for (const Graph* half : {&halves.forward, &halves.backward}) {
      std::map<StringId, std::string> expected;
      for (NodeId id : half->step().order)
        if (const Node& node = half->step().nodes[id];
            node.kind == NodeKind::kCall && numbers.contains(node.name))
          expected.emplace(node.name, numbers.at(node.name));
      CHECK(list_rank_numbers(*half) == expected);
      in_halves += expected.size();
    }
    CHECK(in_halves >= numbers.size());
  }
}

TEST_CASE("what forward need not compute costs no recomputation") {
  const Graph graph = parse(R"(
output loss
output grad fqn=w

graph
  %x = placeholder : f32[64, 64]
  %loss = aten.sum.default(%x) : f32[]
  %relu = aten.relu.default(%x) : f32[64, 64] bwd
  %exp = aten.exp.default(%x) : f32[64, 64]
  %sum_1 = aten.sum.default(%exp) : f32[]
  %add = aten.add.Tensor(%loss, %sum_1) : f32[]
  %ones_like = aten.ones_like.default(%add) : f32[]
  %mul = aten.mul.Tensor(%relu, %exp) : f32[64, 64] bwd
  %mul_1 = aten.mul.Tensor(%mul, %ones_like) : f32[64, 64] bwd
  output((%add, %mul_1))
)");
  const Joint joint = read_joint(graph);
  const ValueCosts costs = price_values(graph, joint, Cluster{});
  const auto seconds_of = [&](std::string_view name) {
    for (NodeId id : graph.step().order)
      if (graph.text(graph.step().nodes[id].name) == name) return costs.seconds[id.index()];
    throw CheckError("no such node");
  };
  CHECK(seconds_of("relu") == 0);
  CHECK(seconds_of("exp") > 1e-6);
}

// Layers of products and activations, so that bytes, seconds and peak are at odds.
std::string layers_graph(int layers) {
  std::string text =
      "output loss\noutput grad fqn=w\n\ngraph\n  %x = placeholder : f32[256, 256]\n"
      "  %w = placeholder : f32[256, 256] role=parameter fqn=w\n";
  std::string last = "x";
  for (int i = 0; i < layers; ++i) {
    text += fmt::format(
        "  %mm{0} = aten.mm.default(%{1}, %w) : f32[256, 256] @layers.{0}\n"
        "  %relu{0} = aten.relu.default(%mm{0}) : f32[256, 256] @layers.{0}\n"
        "  %exp{0} = aten.exp.default(%relu{0}) : f32[256, 256] @layers.{0}\n",
        i, last);
    last = fmt::format("exp{}", i);
  }
  text += fmt::format(
      "  %loss = aten.sum.default(%{}) : f32[] @loss\n  %one = aten.ones_like.default(%loss) : f32[] @loss\n"
      "  %g = aten.mul.Tensor(%{}, %one) : f32[256, 256] @loss bwd\n",
      last, last);
  std::string gradient = "g";
  for (int i = layers - 1; i >= 0; --i) {
    text += fmt::format(
        "  %a{0} = aten.mul.Tensor(%{1}, %exp{0}) : f32[256, 256] @layers.{0} bwd\n"
        "  %b{0} = aten.mul.Tensor(%a{0}, %relu{0}) : f32[256, 256] @layers.{0} bwd\n"
        "  %c{0} = aten.mul.Tensor(%b{0}, %mm{0}) : f32[256, 256] @layers.{0} bwd\n",
        i, gradient);
    gradient = fmt::format("c{}", i);
  }
  return text + fmt::format("  output((%loss, %{}))\n", gradient);
}

TEST_CASE("bytes, seconds and peak are monotone in the share", "[J48]") {
  const Graph graph = parse(layers_graph(8));
  const Joint joint = read_joint(graph);
  const ValueCosts costs = price_values(graph, joint, Cluster{});
  ExactCuts cuts(graph, joint, costs, {});
  const auto measure = [&](const BudgetCut& cut) {
    const Halves halves = split_joint(graph, joint, cut.cut);
    Extents extents(halves.backward);
    return estimate_memory(halves.backward, extents).devices.front().peak;
  };
  BudgetStep last = cut_for_share(cuts, 1, measure);
  CHECK(last.cut.totals.seconds == 0);
  const std::int64_t first_bytes = last.cut.totals.bytes;
  for (int share = 99; share >= 0; --share) {
    const BudgetStep next = cut_for_share(cuts, share / 100.0, measure);
    INFO("share " << share);
    CHECK(next.cut.totals.bytes <= last.cut.totals.bytes);
    CHECK(next.cut.totals.seconds >= last.cut.totals.seconds);
    CHECK(next.peak_bytes <= last.peak_bytes);
    CHECK(next.cut.bound_seconds <= next.cut.totals.seconds);
    CHECK((next.is_held || next.cut.totals.bytes <= first_bytes * share / 100));
    last = next;
  }
  CHECK(last.is_held);
  CHECK(last.cut.totals.bytes < first_bytes / 2);
}

// Products and activations of several widths, so that each memory budget is another choice, and a
// mesh among the inputs.
const char* const kWidths = R"(
output loss
output grad fqn=w

graph
  %x = placeholder : f32[1024, 64]
  %w0 = placeholder : f32[64, 256] role=parameter fqn=w0
  %w1 = placeholder : f32[256, 64] role=parameter fqn=w1
  %w2 = placeholder : f32[64, 512] role=parameter fqn=w2
  %w3 = placeholder : f32[512, 64] role=parameter fqn=w3
  %w4 = placeholder : f32[64, 64] role=parameter fqn=w4
  %mesh = placeholder : =mesh(["dp"], [2], [0, 1], "cuda")
  %mm0 = aten.mm.default(%x, %w0) : f32[1024, 256] @layers.0
  %act0 = aten.gelu.default(%mm0) : f32[1024, 256] @layers.0
  %mm1 = aten.mm.default(%act0, %w1) : f32[1024, 64] @layers.1
  %act1 = aten._softmax.default(%mm1, -1, False) : f32[1024, 64] @layers.1
  %mm2 = aten.mm.default(%act1, %w2) : f32[1024, 512] @layers.2
  %act2 = aten.silu.default(%mm2) : f32[1024, 512] @layers.2
  %mm3 = aten.mm.default(%act2, %w3) : f32[1024, 64] @layers.3
  %act3 = aten.exp.default(%mm3) : f32[1024, 64] @layers.3
  %mm4 = aten.mm.default(%act3, %w4) : f32[1024, 64] @layers.4
  %act4 = aten.rand_like.default(%mm4, pin_memory=False) : f32[1024, 64] @layers.4
  %loss = aten.sum.default(%act4) : f32[] @loss
  %one = aten.ones_like.default(%loss, pin_memory=False) : f32[] @loss
  %g = aten.expand.default(%one, [1024, 64]) : f32[1024, 64]{0, 0} @loss bwd
  %a4 = aten.mul.Tensor(%g, %act4) : f32[1024, 64] @layers.4 bwd
  %b4 = aten.mul.Tensor(%a4, %mm4) : f32[1024, 64] @layers.4 bwd
  %t4 = aten.t.default(%w4) : f32[64, 64]{1, 64} @layers.4 bwd
  %c4 = aten.mm.default(%b4, %t4) : f32[1024, 64] @layers.4 bwd
  %a3 = aten.mul.Tensor(%c4, %act3) : f32[1024, 64] @layers.3 bwd
  %b3 = aten.mul.Tensor(%a3, %mm3) : f32[1024, 64] @layers.3 bwd
  %t3 = aten.t.default(%w3) : f32[64, 512]{1, 64} @layers.3 bwd
  %c3 = aten.mm.default(%b3, %t3) : f32[1024, 512] @layers.3 bwd
  %a2 = aten.mul.Tensor(%c3, %act2) : f32[1024, 512] @layers.2 bwd
  %b2 = aten.mul.Tensor(%a2, %mm2) : f32[1024, 512] @layers.2 bwd
  %t2 = aten.t.default(%w2) : f32[512, 64]{1, 512} @layers.2 bwd
  %c2 = aten.mm.default(%b2, %t2) : f32[1024, 64] @layers.2 bwd
  %a1 = aten.mul.Tensor(%c2, %act1) : f32[1024, 64] @layers.1 bwd
  %b1 = aten.mul.Tensor(%a1, %mm1) : f32[1024, 64] @layers.1 bwd
  %t1 = aten.t.default(%w1) : f32[64, 256]{1, 64} @layers.1 bwd
  %c1 = aten.mm.default(%b1, %t1) : f32[1024, 256] @layers.1 bwd
  %a0 = aten.mul.Tensor(%c1, %act0) : f32[1024, 256] @layers.0 bwd
  %b0 = aten.mul.Tensor(%a0, %mm0) : f32[1024, 256] @layers.0 bwd
  %tx = aten.t.default(%x) : f32[64, 1024]{1, 64} @layers.0 bwd
  %d = aten.mm.default(%tx, %b0) : f32[64, 256] @layers.0 bwd
  output((%loss, %d))
)";

TEST_CASE("PyTorch's memory budgets save what PyTorch saves, and what must not run twice") {
  const Graph graph = merge_equal_calls(parse(kWidths));
  const Joint joint = read_joint(graph);
  const auto saved_of = [&](double share) {
    const Cut cut = cut_as_torch(graph, joint, share);
    const Halves halves = split_joint(graph, joint, cut);
    CHECK(verify_halves(graph, halves.forward, halves.backward).violations.empty());
    std::vector<NodeId> made;
    for (NodeId id : cut.saved)
      if (graph.step().nodes[id].kind == NodeKind::kCall) made.push_back(id);
    return names_of(graph, made);
  };
  // As PyTorch 2.15.0 (scripts/compare_partition.py), but for %act4, which it draws again below 1.
  CHECK(saved_of(1) == "mm0 mm1 act1 mm2 mm3 mm4 act4 tx");
  CHECK(saved_of(0.9) == "mm0 mm1 mm2 mm3 mm4 act4 tx");
  CHECK(saved_of(0.7) == "mm1 mm2 mm3 mm4 act4");
  CHECK(saved_of(0.6) == "mm1 mm2 mm3 act4");
  CHECK(saved_of(0.5) == "mm0 mm1 mm3 mm4 act4 tx");
  CHECK(saved_of(0.4) == "mm0 mm1 mm3 act4 tx");
  CHECK(saved_of(0.3) == "mm1 mm3 mm4 act4");
  CHECK(saved_of(0.1) == "mm3 act4");
  CHECK(saved_of(0) == "act4");
  const std::vector<Cut> cuts = cut_as_torch(graph, joint, {0.5, 0.1, 1.0});
  CHECK(cuts[1].saved == cut_as_torch(graph, joint, 0.1).saved);
  CHECK(cuts[2].saved == cut_as_torch(graph, joint).saved);
}

TEST_CASE("with as many bytes as PyTorch's cut the exact one computes no more products again", "[J47]") {
  for (const char* nodes : {kChain, kWidths}) {
    const Graph graph = merge_equal_calls(parse(nodes));
    const Joint joint = read_joint(graph);
    const ValueCosts costs = price_values(graph, joint, Cluster{});
    const CutTotals theirs = add_up(graph, cut_as_torch(graph, joint), costs);
    ExactCuts cuts(graph, joint, costs, {.keeps_heavy = true});
    const CutTotals ours = cuts.cut_within(theirs.bytes).totals;
    CHECK(ours.bytes <= theirs.bytes);
    CHECK(ours.flops <= theirs.flops);
    CHECK(ours.seconds <= theirs.seconds);
  }
}

TEST_CASE("a knapsack keeps what is worth most, by steps of weight and in single precision") {
  using Kept = std::vector<std::uint8_t>;
  CHECK(fill_knapsack({{0.5, 3}, {0.4, 2}, {0.3, 2}}, 0.7) == Kept{0, 1, 1});
  CHECK(fill_knapsack({{0.5, 3}, {0.4, 2}, {0.3, 2}}, 0.6) == Kept{1, 0, 0});
  CHECK(fill_knapsack({{0.00004, 1}, {0.6, 1}}, 0.5) == Kept{1, 0});
  // What adds nothing to a large sum is left out, though it weighs nothing.
  CHECK(fill_knapsack({{0.5, std::int64_t{1} << 40}, {0.00001, 1}}, 1) == Kept{1, 0});
  CHECK(fill_knapsack({}, 1).empty());
}

// At most 14 nodes: two inputs, calls of forward, the loss, its seed, and backward calls that read
// forward values.
std::string random_graph(std::mt19937& dice) {
  const auto roll = [&](int n) { return static_cast<int>(dice() % static_cast<unsigned>(n)); };
  std::string text =
      "output loss\noutput grad fqn=w\n\ngraph\n  %x = placeholder : f32[32, 32]\n  %w = placeholder : "
      "f32[32, 32]\n";
  std::vector<std::string> values = {"x", "w"};
  const int forward = 3 + roll(4);
  const char* const kUnary[] = {"relu", "exp", "neg", "sigmoid"};
  for (int i = 0; i < forward; ++i) {
    const std::string a = values[static_cast<std::size_t>(roll(static_cast<int>(values.size())))];
    const std::string b = values[static_cast<std::size_t>(roll(static_cast<int>(values.size())))];
    const int kind = roll(4);
    if (kind == 0) {
      text += fmt::format("  %v{} = aten.mm.default(%{}, %{}) : f32[32, 32]\n", i, a, b);
    } else if (kind == 1) {
      text += fmt::format("  %v{} = aten.mul.Tensor(%{}, %{}) : f32[32, 32]\n", i, a, b);
    } else if (kind == 2) {
      text += fmt::format("  %v{} = aten.t.default(%{}) : f32[32, 32]{{1, 32}}\n", i, a);
    } else {
      text += fmt::format("  %v{} = aten.{}.default(%{}) : f32[32, 32]\n", i, kUnary[roll(4)], a);
    }
    values.push_back(fmt::format("v{}", i));
  }
  text +=
      fmt::format("  %loss = aten.sum.default(%{}) : f32[]\n  %one = aten.ones_like.default(%loss) : f32[]\n",
                  values.back());
  std::string gradient = "one";
  for (int i = 0; i < 3; ++i) {
    const std::string value = values[static_cast<std::size_t>(roll(static_cast<int>(values.size())))];
    text += fmt::format("  %g{} = aten.mul.Tensor(%{}, %{}) : f32[32, 32] bwd\n", i, value, gradient);
    gradient = fmt::format("g{}", i);
  }
  return text + fmt::format("  output((%loss, %{}))\n", gradient);
}

TEST_CASE("no choice is better than the exact cut, on 10,000 random graphs", "[J49]") {
  std::mt19937 dice(1);
  std::size_t compared = 0;
  for (int round = 0; round < 10'000; ++round) {
    const Graph graph = parse(random_graph(dice));
    const Joint joint = read_joint(graph);
    const ValueCosts costs = price_values(graph, joint, Cluster{});
    ExactCuts cuts(graph, joint, costs, {});
    const double lambda = std::pow(10.0, 7.0 + 0.5 * (round % 8));
    const BudgetCut best = cuts.cut_at(lambda);
    const double value = static_cast<double>(best.totals.bytes) + lambda * best.totals.seconds;
    std::vector<NodeId> calls;
    for (NodeId id : graph.step().order)
      if (graph.step().nodes[id].kind == NodeKind::kCall && !joint.backward(id)) calls.push_back(id);
    REQUIRE(calls.size() <= 8);
    const BudgetCut within = cuts.cut_within(best.totals.bytes);
    for (unsigned mask = 0; mask < 1U << calls.size(); ++mask) {
      Cut cut;
      NodeId problem;
      const bool is_cut = try_cut(
          graph, joint,
          [&](NodeId id) {
            const auto at = static_cast<unsigned>(std::ranges::find(calls, id) - calls.begin());
            return ValueChoice{.is_recomputed = (mask >> at & 1) != 0};
          },
          cut, problem);
      if (!is_cut) continue;
      const CutTotals totals = add_up(graph, cut, costs);
      const double other = static_cast<double>(totals.bytes) + lambda * totals.seconds;
      ++compared;
      if (other < value * (1 - 1e-6) - 16) FAIL(fmt::format("{} below {} in round {}", other, value, round));
      if (totals.bytes <= within.totals.bytes && totals.seconds < within.bound_seconds * (1 - 1e-6) - 1e-12)
        FAIL(fmt::format("{} s below the bound {} in round {}", totals.seconds, within.bound_seconds, round));
    }
  }
  CHECK(compared > 100'000);
}

}  // namespace
}  // namespace epweave
