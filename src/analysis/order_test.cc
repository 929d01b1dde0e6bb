#include "analysis/order.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <random>

#include "analysis/aliases.h"
#include "analysis/collectives.h"
#include "analysis/ep_regions.h"
#include "analysis/value_numbers.h"
#include "analysis/verify.h"
#include "ir/text/text.h"
#include "ops/bind.h"

namespace epweave {
namespace {

Graph parse(std::string_view body) {
  return parse_text(fmt::format("epweave text 1\ndevice cuda:0\ngraph\n{}  output([])\n", body), "test.txt");
}

NodeId find(const Graph& graph, std::string_view name) {
  for (NodeId id : graph.step().order)
    if (graph.text(graph.step().nodes[id].name) == name) return id;
  throw CheckError("no such node");
}

std::string edges_of(const Graph& graph) {
  const Effects effects(graph, graph.step());
  std::vector<std::string> lines;
  for (const OrderEdge& edge : effects.order_edges())
    lines.push_back(print_path(graph, graph.step(), {&edge, 1}));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// The violation that appears when `name` moves to the front of the calls.
std::string violation_of_hoisting(const Graph& graph, std::string_view name) {
  Body after = graph.step();
  const NodeId id = find(graph, name);
  std::erase(after.order, id);
  auto first = after.order.begin();
  while (after.nodes[*first].kind == NodeKind::kPlaceholder) ++first;
  after.order.insert(first, id);
  const auto edge = find_order_violation(find_order_facts(graph, graph.step()), after, {});
  return edge ? print_path(graph, graph.step(), {&*edge, 1}) : "none";
}

std::string names_of(const Graph& graph, const std::vector<NodeId>& order) {
  std::vector<std::string_view> names;
  for (NodeId id : order)
    if (graph.step().nodes[id].kind == NodeKind::kCall)
      names.push_back(graph.text(graph.step().nodes[id].name));
  return fmt::format("{}", fmt::join(names, " "));
}

const std::string kBucket = R"(  %x = placeholder : f32[8]
  %buf = aten.empty.memory_format([8]) : f32[8]
  %a = aten.view.default(%buf, [8]) : f32[8]
  %b = aten.view.default(%buf, [2, 4]) : f32[2, 4]
  %w = aten.split_with_sizes_copy.out(%x, [8], out=[%a])
  %y = aten.mul.Tensor(%b, %b) : f32[2, 4]
  %w2 = aten.split_with_sizes_copy.out(%x, [8], out=[%a])
)";

}  // namespace

TEST_CASE("storage reached through views orders writes and reads") {
  const Graph graph = parse(kBucket);
  CHECK(edges_of(graph) ==
        "w -> y (reads what it wrote in buf)\n"
        "y -> w2 (overwrites what it reads in buf)");
  CHECK(violation_of_hoisting(graph, "b") == "buf -> b (takes its value)");
}

TEST_CASE("a reader of bucketed storage cannot pass the copy that fills it") {
  const Graph graph = parse(kBucket);
  Body after = graph.step();
  std::swap(after.order[4], after.order[5]);  // w, y
  const auto edge = find_order_violation(find_order_facts(graph, graph.step()), after, {});
  REQUIRE(edge);
  CHECK(print_path(graph, graph.step(), {&*edge, 1}) == "w -> y (reads what it wrote in buf)");
}

TEST_CASE("a wait completes what its launch reads and writes") {
  const Graph graph = parse(R"(  %x = placeholder : f32[8]
  %t = aten.mul.Tensor(%x, %x) : f32[8]
  %l = _c10d_functional.all_reduce.default(%t, "sum", "0") : f32[8]
  %w = _c10d_functional.wait_tensor.default(%l) : f32[8]
  %z = aten.add_.Tensor(%t, %x) : f32[8]
)");
  CHECK(edges_of(graph) ==
        "l -> z (overwrites what it reads in t)\n"
        "w -> z (overwrites what it reads in t)");
}

TEST_CASE("an op of unknown effect keeps its place among effects") {
  const Graph graph = parse(R"(  %x = placeholder : f32[8]
  %z = placeholder : f32[8]
  %l = _c10d_functional.all_reduce.default(%x, "sum", "0") : f32[8]
  %u = mine.strange.default(%z) : f32[8]
  %v = aten.mul.Tensor(%z, %z) : f32[8]
  %y = aten.mul.Tensor(%x, %x) : f32[8]
)");
  CHECK(violation_of_hoisting(graph, "u") == "l -> u (has or follows an op with unknown effects)");
  CHECK(violation_of_hoisting(graph, "v") == "u -> v (reads what it wrote in z)");
  CHECK(violation_of_hoisting(graph, "y") == "none");
}

TEST_CASE("elements of a computed tuple are storage of their own, elements of a split are views") {
  const Graph computed = parse(R"(  %x = placeholder : f32[8]
  %t = aten.topk.default(%x, 2) : (f32[2], i64[2])
  %v = operator.getitem(%t, 0) : f32[2]
  %i = operator.getitem(%t, 1) : i64[2]
  %w = aten.add_.Tensor(%v, %v) : f32[2]
  %r = aten.mul.Tensor(%i, %i) : i64[2]
)");
  CHECK(edges_of(computed).empty());
  const Graph split = parse(R"(  %x = placeholder : f32[8]
  %t = aten.split.Tensor(%x, 4) : [f32[4], f32[4]]
  %v = operator.getitem(%t, 0) : f32[4]
  %w = aten.add_.Tensor(%v, %v) : f32[4]
  %r = aten.mul.Tensor(%x, %x) : f32[8]
)");
  CHECK(edges_of(split) == "w -> r (reads what it wrote in x)");
}

TEST_CASE("launches on one group stay in order unless they are free") {
  const Graph graph = parse(R"(  %x = placeholder : f32[8]
  %a = _c10d_functional.all_reduce.default(%x, "sum", "0") : f32[8]
  %other = _c10d_functional.all_reduce.default(%x, "sum", "1") : f32[8]
  %b = _c10d_functional.all_reduce.default(%x, "sum", "0") : f32[8]
)");
  CHECK(violation_of_hoisting(graph, "other") == "none");
  CHECK(violation_of_hoisting(graph, "b") == "a -> b (is launched after it on the same process group)");
  Body after = graph.step();
  std::swap(after.order[1], after.order[3]);
  IdSet<NodeId> free_launches;
  free_launches.insert(find(graph, "b"));
  CHECK_FALSE(find_order_violation(find_order_facts(graph, graph.step()), after, free_launches));
}

TEST_CASE("groups that are looked up in a mesh are told apart by what is looked up") {
  const Graph graph = parse(R"(  %m = placeholder
  %x = placeholder : f32[8]
  %g0 = _dtensor.mesh_get_process_group.default(%m, 0)
  %g1 = _dtensor.mesh_get_process_group.default(%m, 0)
  %g2 = _dtensor.mesh_get_process_group.default(%m, 1)
  %a = _c10d_functional.all_reduce.default(%x, "sum", %g0) : f32[8]
  %b = _c10d_functional.all_reduce.default(%x, "sum", %g1) : f32[8]
  %c = _c10d_functional.all_reduce.default(%x, "sum", %g2) : f32[8]
)");
  std::string groups;
  for (const Launch& launch : find_launches(*graph.context, graph.step()))
    groups += name_of_group(*graph.context, graph.step(), launch.group);
  CHECK(groups == "g0g0g2");
}

// With two ranks the groups of two meshes are both the default group, and tracers take one mesh for
// the other.
TEST_CASE("lookups of one name along axes alike are one group, in launches and as values") {
  const Graph graph = parse(R"(  %fsdp = placeholder : =mesh(["fsdp"], [2], [0, 1], "cuda")
  %both = placeholder : =mesh(["efsdp", "ep"], [1, 2], [[0, 1]], "cuda")
  %far = placeholder : =mesh(["tp", "pp"], [2, 2], [[0, 1], [2, 3]], "cuda")
  %x = placeholder : f32[8]
  %g0 = _dtensor.mesh_get_process_group.default(%fsdp, 0) : =pg(0)
  %g1 = _dtensor.mesh_get_process_group.default(%both, -1) : =pg(0)
  %g2 = _dtensor.mesh_get_process_group.default(%far, 0) : =pg(0)
  %g3 = _dtensor.mesh_get_process_group.default(%far, 1) : =pg(1)
  %a = _c10d_functional.all_reduce.default(%x, "sum", %g0) : f32[8]
  %b = _c10d_functional.all_reduce.default(%x, "sum", %g1) : f32[8]
  %c = _c10d_functional.all_reduce.default(%x, "sum", %g2) : f32[8]
  %d = _c10d_functional.all_reduce.default(%x, "sum", %g3) : f32[8]
)");
  const Effects effects(graph, graph.step());
  const ValueNumbers numbers(graph, effects);
  std::string groups, values;
  for (const Launch& launch : find_launches(*graph.context, graph.step())) {
    groups += name_of_group(*graph.context, graph.step(), launch.group);
    const Arg group = arg_of(*graph.context, graph.step().nodes[launch.node], 2);
    values += graph.text(graph.step().nodes[numbers[group.as_node()]].name);
  }
  CHECK(groups == "g0g0g2g3");
  CHECK(values == "g0g0g2g3");
}

TEST_CASE("what storage holds has the number of what the same writes gave") {
  const Graph graph = parse(R"(  %x = placeholder : f32[4]
  %y = placeholder : f32[4]
  %a = aten.zeros_like.default(%x) : f32[4]
  %b = aten.zeros_like.default(%x) : f32[4]
  %c = aten.zeros_like.default(%x) : f32[4]
  %a1 = aten.add_.Tensor(%a, %x) : f32[4]
  %b1 = aten.add_.Tensor(%b, %y) : f32[4]
  %c1 = aten.add_.Tensor(%c, %x) : f32[4]
  %of_a = aten.neg.default(%a) : f32[4]
  %of_b = aten.neg.default(%b) : f32[4]
  %of_c = aten.neg.default(%c) : f32[4]
)");
  const Effects effects(graph, graph.step());
  const ValueNumbers numbers(graph, effects);
  CHECK(numbers[find(graph, "of_a")] != numbers[find(graph, "of_b")]);
  CHECK(numbers[find(graph, "of_a")] == numbers[find(graph, "of_c")]);
}

TEST_CASE("what selective checkpointing saved and does again has the numbers of the first time") {
  const Graph graph = parse(R"(  %x = placeholder : f32[4]
  %a = aten.neg.default(%x) : f32[4]
  %saved = aten.detach.default(%a) : f32[4]
  %sum = _c10d_functional.all_reduce.default(%a, "sum", "0") : f32[4]
  %launch = aten.detach.default(%sum) : f32[4]
  %w = _c10d_functional.wait_tensor.default(%sum) : f32[4]
  %ww = _c10d_functional.wait_tensor.default(%w) : f32[4]
  %of_a = aten.exp.default(%a) : f32[4]
  %of_w = aten.exp.default(%ww) : f32[4]
  %v = _c10d_functional.wait_tensor.default(%launch) : f32[4]
  %of_a_again = aten.exp.default(%saved) : f32[4]
  %of_w_again = aten.exp.default(%v) : f32[4]
  %written = aten.add_.Tensor(%w, %x) : f32[4]
  %of_written = aten.exp.default(%v) : f32[4]
)");
  const Effects effects(graph, graph.step());
  const ValueNumbers numbers(graph, effects);
  const auto is_same = [&](std::string_view a, std::string_view b) {
    return numbers[find(graph, a)] == numbers[find(graph, b)];
  };
  CHECK(is_same("of_a", "of_a_again"));
  CHECK(is_same("of_w", "of_w_again"));
  CHECK_FALSE(is_same("of_w", "of_written"));
  CHECK_FALSE(is_same("of_w", "of_a"));
}

TEST_CASE("a group behind a long chain of calls has a number") {
  std::string body = "  %x = placeholder : f32[4]\n  %g0 = mylib.mesh.default(%x)\n";
  for (int i = 1; i < 50'000; ++i) body += fmt::format("  %g{} = operator.getitem(%g{}, 0)\n", i, i - 1);
  body += "  %d = _c10d_functional.all_reduce.default(%x, \"sum\", %g49999) : f32[4]\n";
  const Graph graph = parse(body);
  const std::vector<Launch> launches = find_launches(*graph.context, graph.step());
  REQUIRE(launches.size() == 1);
  CHECK(launches.front().group == Arg::node(find(graph, "g49999")));
}

TEST_CASE("a long chain of calls without recorded types is checked") {
  std::string body = "  %x = placeholder : f32[4]\n  %g0 = mylib.mesh.default(%x)\n";
  for (int i = 1; i < 50'000; ++i) body += fmt::format("  %g{} = operator.getitem(%g{}, 0)\n", i, i - 1);
  CHECK(verify_graph(parse(body)).size() == 49'999);  // no tuple among them is known
}

TEST_CASE("an operand is in use until the wait behind elements, views and other waits") {
  const Graph graph = parse(R"(  %x = placeholder : f32[4]
  %y = placeholder : f32[4]
  %l = _c10d_functional.all_reduce_coalesced.default([%x, %y], "sum", "g") : [f32[4], f32[4]]
  %g = operator.getitem(%l, 0) : f32[4]
  %w = _c10d_functional.wait_tensor.default(%g) : f32[4]
  %a = aten.alias.default(%w) : f32[4]
  %v = _c10d_functional.wait_tensor.default(%a) : f32[4]
  %m = aten.mul_.Tensor(%x, 2.0) : f32[4]
)");
  const Body& body = graph.step();
  CHECK(find_waited_launch(*graph.context, body, find(graph, "w")) == find(graph, "l"));
  CHECK(find_waited_launch(*graph.context, body, find(graph, "v")) == find(graph, "l"));
  CHECK_FALSE(find_waited_launch(*graph.context, body, find(graph, "a")));
  CHECK(violation_of_hoisting(graph, "m").find("overwrites what it reads") != std::string::npos);
  Body after = body;  // m in front of the waits, behind the launch
  const auto moved = after.order.begin() + 7;
  std::rotate(after.order.begin() + 4, moved, moved + 1);
  const auto edge = find_order_violation(find_order_facts(graph, body), after, {});
  REQUIRE(edge);
  CHECK(edge->before == find(graph, "w"));
}

TEST_CASE("aten.lift hands on its operand") {
  const Graph graph = parse(R"(  %x = placeholder : f32[4]
  %l = aten.lift.default(%x) : f32[4]
)");
  CHECK(Effects(graph, graph.step()).storage_of(find(graph, "l")) == find(graph, "x"));
}

TEST_CASE("pieces of the unsafe splits and _unsafe_view show their operand, whatever their schemas promise") {
  const Graph graph = parse(R"(  %x = placeholder : f32[4, 3]
  %v = aten._unsafe_view.default(%x, [12]) : f32[12]
  %s = aten.unsafe_split.Tensor(%x, 2) : [f32[2, 3], f32[2, 3]+6]
  %s0 = operator.getitem(%s, 0) : f32[2, 3]
  %c = aten.unsafe_chunk.default(%x, 2) : [f32[2, 3], f32[2, 3]+6]
  %c1 = operator.getitem(%c, 1) : f32[2, 3]+6
  %n = aten.unsafe_split_with_sizes.default(%x, [1, 3]) : [f32[1, 3], f32[3, 3]+3]
  %n1 = operator.getitem(%n, 1) : f32[3, 3]+3
  %y = aten.neg.default(%s0) : f32[2, 3]
  %w = aten.add_.Scalar(%c1, 1) : f32[2, 3]+6
  %z = aten.neg.default(%n1) : f32[3, 3]
)");
  const Effects effects(graph, graph.step());
  for (std::string_view name : {"v", "s", "s0", "c", "c1", "n", "n1"})
    CHECK(effects.storage_of(find(graph, name)) == find(graph, "x"));
  for (std::string_view name : {"v", "s", "c", "n"})
    CHECK(shown_operand(*graph.context, graph.step(), find(graph, name)) == find(graph, "x"));
  CHECK(shown_operand(*graph.context, graph.step(), find(graph, "s0")) == find(graph, "s"));
  CHECK(edges_of(graph) == "y -> w (overwrites what it reads in x)\nw -> z (reads what it wrote in x)");
}

TEST_CASE("the host reads a non-blocking copy only behind something that waits") {
  const Graph graph = parse(R"(  %x = placeholder : i64[]
  %a = aten._to_copy.default(%x, device=@cpu, non_blocking=True) : i64[]@cpu
  %b = aten._to_copy.default(%x, device=@cpu, non_blocking=False) : i64[]@cpu
  %i = aten._local_scalar_dense.default(%a) : SymInt(u0)
)");
  Body after = graph.step();
  std::swap(after.order[2], after.order[3]);  // b, i
  const auto edge = find_order_violation(find_order_facts(graph, graph.step()), after, {});
  REQUIRE(edge);
  CHECK(edge->reason == OrderReason::kHostRead);
  CHECK_FALSE(find_order_violation(find_order_facts(graph, graph.step()), graph.step(), {}));
}

TEST_CASE("F17: the stable sort only delays, and interleaves what several regions ask for") {
  const Graph graph = parse(R"(  %x = placeholder : f32[8]
  %r0s = aten.neg.default(%x) : f32[8]
  %r1s = aten.neg.default(%r0s) : f32[8]
  %boundary = aten.neg.default(%r1s) : f32[8]
  %r0t = aten.neg.default(%boundary) : f32[8]
  %r1t = aten.add.Tensor(%r1s, %r0t) : f32[8]
)");
  const NodeLists inputs = list_inputs(*graph.context, graph.step());
  const std::vector<OrderEdge> phases = {
      {find(graph, "r0s"), find(graph, "r0t"), OrderReason::kRequested, {}},
      {find(graph, "r1s"), find(graph, "r1t"), OrderReason::kRequested, {}}};
  const auto sorted = sort_stably(graph.step(), inputs, phases);
  CHECK(names_of(graph, std::get<StableOrder>(sorted).order) == "r0s r1s boundary r0t r1t");
}

TEST_CASE("a delayed node is placed right behind what it waited for") {
  const Graph graph = parse(R"(  %x = placeholder : f32[8]
  %a = aten.neg.default(%x) : f32[8]
  %b = aten.neg.default(%x) : f32[8]
  %c = aten.neg.default(%b) : f32[8]
  %d = aten.neg.default(%x) : f32[8]
  %e = aten.neg.default(%x) : f32[8]
)");
  const NodeLists inputs = list_inputs(*graph.context, graph.step());
  const OrderEdge edge{find(graph, "d"), find(graph, "b"), OrderReason::kRequested, {}};
  const auto sorted = sort_stably(graph.step(), inputs, {&edge, 1});
  CHECK(names_of(graph, std::get<StableOrder>(sorted).order) == "a d b c e");

  const OrderEdge back{find(graph, "c"), find(graph, "a"), OrderReason::kRequested, {}};
  const OrderEdge cycle[] = {back, {find(graph, "a"), find(graph, "b"), OrderReason::kRequested, {}}};
  const auto stuck = sort_stably(graph.step(), inputs, cycle);
  CHECK(print_path(graph, graph.step(), std::get<Cycle>(stuck)) ==
        "c -> b (is scheduled behind it) -> c (takes its value)");
}

namespace {

// The length of the shortest cycle, a run of requested edges counted once: by trying every simple
// path.
std::size_t shortest_cycle_by_trial(const Graph& graph, const NodeLists& inputs,
                                    const std::vector<OrderEdge>& edges) {
  const Body& body = graph.step();
  std::vector<OrderEdge> all = edges;
  for (NodeId id : body.order)
    for (NodeId input : inputs[id]) all.push_back({input, id, OrderReason::kData, {}});
  std::size_t best = ~std::size_t{0};
  std::vector<std::uint8_t> on_path(body.nodes.size());
  const std::function<void(NodeId, NodeId, std::size_t, bool)> extend = [&](NodeId start, NodeId at,
                                                                            std::size_t length, bool in_run) {
    for (const OrderEdge& edge : all) {
      if (edge.before != at) continue;
      const bool is_request = edge.reason == OrderReason::kRequested;
      const std::size_t next = length + (is_request && in_run ? 0 : 1);
      if (next >= best) continue;
      if (edge.after == start) {
        best = next;
      } else if (on_path[edge.after.index()] == 0) {
        on_path[edge.after.index()] = 1;
        extend(start, edge.after, next, is_request);
        on_path[edge.after.index()] = 0;
      }
    }
  };
  for (NodeId id : body.order) extend(id, id, 0, false);
  return best;
}

std::size_t length_of(const Cycle& cycle) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < cycle.size(); ++i)
    length += i == 0 || cycle[i].reason != OrderReason::kRequested ||
              cycle[i - 1].reason != OrderReason::kRequested;
  return length;
}

}  // namespace

TEST_CASE("a contradiction is the shortest cycle, and one") {
  std::mt19937 random(7);
  std::map<std::size_t, int> lengths;
  for (int trial = 0; trial < 400; ++trial) {
    std::string text = "  %n0 = placeholder : f32[8]\n";
    for (unsigned i = 1; i < 9; ++i)
      text += fmt::format("  %n{} = aten.add.Tensor(%n{}, %n{}) : f32[8]\n", i, random() % i, random() % i);
    const Graph graph = parse(text);
    const NodeLists inputs = list_inputs(*graph.context, graph.step());
    std::vector<OrderEdge> edges;
    for (int i = 0; i < 3; ++i) {
      const NodeId a(random() % 8U + 1), b(random() % 8U + 1);
      const auto reason = random() % 2 == 0 ? OrderReason::kRequested : OrderReason::kReadAfterWrite;
      if (a != b) edges.push_back({a, b, reason, {}});
    }
    const auto sorted = sort_stably(graph.step(), inputs, edges);
    const auto* cycle = std::get_if<Cycle>(&sorted);
    const std::size_t expected = shortest_cycle_by_trial(graph, inputs, edges);
    REQUIRE((cycle != nullptr) == (expected != ~std::size_t{0}));
    if (cycle == nullptr) continue;
    for (std::size_t i = 0; i < cycle->size(); ++i)
      REQUIRE((*cycle)[i].after == (*cycle)[(i + 1) % cycle->size()].before);
    CHECK(length_of(*cycle) == expected);
    ++lengths[expected];
  }
  CHECK(lengths.size() >= 3);  // short ones and longer ones came up
}

TEST_CASE("users and inputs name each node once") {
  const Graph graph = parse(R"(  %x = placeholder : f32[8]
  %a = aten.add.Tensor(%x, %x) : f32[8]
  %b = aten.add.Tensor(%a, %x) : f32[8]
)");
  const NodeLists inputs = list_inputs(*graph.context, graph.step());
  const NodeLists users = invert(inputs, graph.step().order);
  auto names = [&](std::span<const NodeId> ids) {
    std::string text;
    for (NodeId id : ids) text += graph.text(graph.step().nodes[id].name);
    return text;
  };
  CHECK(names(inputs[find(graph, "b")]) == "ax");
  CHECK(names(users[find(graph, "x")]) == "ab");
  CHECK(names(users[find(graph, "b")]).empty());
}

}  // namespace epweave
