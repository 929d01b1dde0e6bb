#include "analysis/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "analysis/rank_view.h"
#include "analysis/type_symbols.h"
#include "analysis/verify_changes.h"
#include "io/file.h"
#include "ir/text/text.h"
#include "ops/bind.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

std::string graph_folder() {
  return EPWEAVE_SOURCE_DIR "/testdata/graphs/";
}

Graph load(const std::string& name) {
  return read_graph(graph_folder() + name + ".epw.gz");
}

std::vector<std::string> lines_of(const Graph& graph, const std::vector<Violation>& violations) {
  std::vector<std::string> lines;
  for (const Violation& violation : violations) lines.push_back(print_violation(graph, violation));
  return lines;
}

std::map<std::string, int> count_violations(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Violation& violation : verify_graph(graph)) ++counts[violation.invariant];
  return counts;
}

bool names(const std::vector<Violation>& found, std::string_view invariant, std::string_view node) {
  return std::any_of(found.begin(), found.end(),
                     [&](const Violation& v) { return v.invariant == invariant && v.site.node == node; });
}

// The first node of the step for which `is_wanted` holds.
template <class Predicate>
NodeId find_node(const Graph& graph, const Predicate& is_wanted) {
  for (NodeId id : graph.step().order)
    if (is_wanted(graph.step().nodes[id])) return id;
  FAIL("no such node");
  return {};
}

NodeId first_call(const Graph& graph, std::string_view target) {
  return find_node(graph, [&](const Node& node) { return graph.text(node.target) == target; });
}

TEST_CASE("traces and what torchtitan derives from them without chunking are clean") {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(graph_folder())) {
    const std::string name = entry.path().filename().string();
    const bool is_unchunked =
        name.find(".0_") != name.npos || name.find(".1") != name.npos || name.find("eagerchunk") != name.npos;
    if (!is_unchunked || name.find("671b") != name.npos) continue;  // the largest: benchmarks
    INFO(name);
    const Graph graph = read_graph(entry.path().string());
    for (const Violation& violation : verify_graph(graph)) FAIL_CHECK(print_violation(graph, violation));
    ++count;
  }
  CHECK(count > 0);
}

TEST_CASE("values that torchtitan's chunking left stale are found") {
  CHECK(count_violations(load("dsv3_debug_ep2.2_chunk_batch")) == std::map<std::string, int>{{"type", 107}});
  CHECK(count_violations(load("dsv3_debug_ep2.5_schedule")) ==
        std::map<std::string, int>{{"type", 97}, {"symbols-bound", 304}});
}

// One alteration of a recorded tensor, anywhere in a type.
using Alter = std::function<void(Context&, TensorType&)>;

TypeId altered(Context& context, TypeId id, const Alter& alter) {
  Type type = context.types[id];
  if (type.kind == TypeKind::kTensor) {
    alter(context, type.tensor);
  } else {
    for (TypeId& element : type.elements)
      if (element && context.types[element].kind == TypeKind::kTensor) {
        element = altered(context, element, alter);
        break;
      }
  }
  return context.types.intern(std::move(type));
}

// The stride of a dimension of extent 1 addresses nothing, and may be any.
std::vector<Alter> alterations(const Context& context, const TensorType& tensor) {
  std::vector<Alter> result;
  result.push_back(
      [](Context&, TensorType& t) { t.dtype = t.dtype == DType::kInt16 ? DType::kInt8 : DType::kInt16; });
  result.push_back([](Context& c, TensorType& t) { t.device = c.strings.intern("cuda:7"); });
  result.push_back([](Context& c, TensorType& t) {
    t.offset = c.exprs.add(t.offset ? t.offset : c.exprs.number(0), c.exprs.number(3));
  });
  for (std::size_t i = 0; i < tensor.rank(); ++i) {
    result.push_back(
        [i](Context& c, TensorType& t) { t.sizes[i] = c.exprs.add(t.sizes[i], c.exprs.number(1)); });
    if (context.exprs.constant(tensor.sizes[i]) == 1) continue;
    result.push_back(
        [i](Context& c, TensorType& t) { t.strides[i] = c.exprs.add(t.strides[i], c.exprs.number(1)); });
  }
  return result;
}

const TensorType* first_tensor(const Context& context, TypeId id) {
  if (!id) return nullptr;
  if (const TensorType* tensor = tensor_of(context, id)) return tensor;
  for (TypeId element : context.types[id].elements)
    if (const TensorType* tensor = tensor_of(context, element)) return tensor;
  return nullptr;
}

// Alters, one by one, everything recorded for one node of each op that `seen` lacks.
void check_alterations(const Graph& sound, std::set<const OpInfo*>& seen) {
  Graph graph = sound;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (node.op == nullptr || !node.type || first_tensor(*graph.context, node.type) == nullptr) continue;
    if (!seen.insert(node.op).second) continue;
    const TypeId recorded = node.type;
    const auto all = alterations(*graph.context, *first_tensor(*graph.context, recorded));
    for (std::size_t i = 0; i < all.size(); ++i) {
      graph.step().nodes[id].type = altered(*graph.context, recorded, all[i]);
      std::vector<Violation> found;
      Facts facts(graph);
      verify_types(graph, facts, found);
      INFO(graph.text(node.name) << " (" << node.op->target << "), alteration " << i << " to "
                                 << print_type(*graph.context, node.type));
      CHECK(names(found, "type", graph.text(node.name)));
      std::vector<Violation> of_changes;
      verify_types(graph, facts, UnchangedCalls(graph, sound), of_changes);
      CHECK(lines_of(graph, of_changes) == lines_of(graph, found));
    }
    graph.step().nodes[id].type = recorded;
  }
}

TEST_CASE("an altered dtype, extent, stride, offset or device is found at its node") {
  std::set<const OpInfo*> seen;
  for (const char* name : {"dsv3_debug_ep2.0_traced", "dsv3_debug_ep2.1b_remat",
                           "dsv3_debug_ep2_eagerchunk.5_schedule", "dsv3_debug_ep2_sdpa_r030.1b_remat",
                           "llama3_debug_fsdp2_tp2_coor.0_traced", "dsv3_debug_fsdp2_tp2_ep4.0_traced"})
    check_alterations(load(name), seen);
  CHECK(seen.size() >= 85);
}

TEST_CASE("a call that stays is checked again where what its type follows from does not") {
  const Graph sound = load("dsv3_debug_ep2.1b_remat");
  Graph graph = sound;
  Body& step = graph.step();
  const NodeId mm = first_call(graph, "aten.mm.default");
  std::string expected;

  SECTION("what a symbol is a multiple of") {
    for (Symbol& symbol : graph.symbols) symbol.asserts.reset(), symbol.replaced_by.reset();
    expected = "type 8";
  }
  SECTION("a symbol's row") {
    graph.symbols.clear();
    expected = "type 18";
  }
  SECTION("the ranks of a group") {
    for (ProcessGroup& group : graph.groups) group.ranks.push_back(7);
    expected = "collectives 254";
  }
  SECTION("the type of an operand") {
    const NodeId operand = arg_of(*graph.context, step.nodes[mm], 0).as_node();
    Node& node = step.nodes[operand];
    node.type = altered(*graph.context, node.type, [](Context& c, TensorType& t) {
      t.sizes[0] = c.exprs.add(t.sizes[0], c.exprs.number(1));
    });
    expected = "type 3";
  }
  SECTION("an argument") {
    const auto args = graph.context->args[step.nodes[mm].args];
    const Arg swapped[] = {args[1], args[0]};
    step.nodes[mm].args = graph.context->args.add(swapped);
    expected = "type 1";
  }
  SECTION("an argument that its schema lacks") {
    const Arg kwargs[] = {Arg::text(graph.intern("dims")), Arg::integer(3)};
    step.nodes[mm].kwargs = graph.context->args.add(kwargs);
    expected = "schema 1";
  }
  SECTION("a row that did not execute") {
    Graph before = sound;
    Node wrong = step.nodes[mm];
    wrong.name = graph.intern("wrong");
    wrong.type = step.nodes[step.order.front()].type;
    const NodeId id = before.step().nodes.push_back(wrong);
    graph = before;
    graph.step().order.insert(graph.step().order.end() - 1, id);
    CHECK(lines_of(graph, verify_changes(graph, before)) == lines_of(graph, verify_graph(graph)));
    expected = "type 1";
  }
  CHECK(lines_of(graph, verify_changes(graph, sound)) == lines_of(graph, verify_graph(graph)));
  std::string found;
  for (const auto& [invariant, count] : count_violations(graph))
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", invariant, count);
  CHECK(found == expected);
}

TEST_CASE("a call that stays is checked again where an input's device or what a new symbol says is another") {
  const Graph sound = parse_text(R"(epweave text 1
device cuda:0
symbol u0 range=[0, 64] unbacked
symbol u1 range=[0, 64] unbacked
graph
  %x = placeholder : f32[u0] role=user which=x
  %y = placeholder : f32[u1] role=user which=y
  %d = coor.current_device.default() : =@cuda:0
  %s = aten.add.Tensor(%x, %y) : f32[u0]
  output([%s])
)",
                                 "test");
  REQUIRE(lines_of(sound, verify_graph(sound)).empty());
  Graph graph = sound;
  std::vector<std::string> expected;
  SECTION("the device of inputs") {
    for (NodeId id : graph.step().order)
      if (const Node& node = std::as_const(graph.step().nodes)[id]; tensor_of(*graph.context, node.type))
        graph.step().nodes[id].type = altered(*graph.context, node.type, [](Context& c, TensorType& t) {
          t.device = c.strings.intern("cuda:1");
        });
    expected = {
        "type: d (coor.current_device.default): recorded device cuda:0, the arguments give device cuda:1"};
  }
  SECTION("a new symbol says which of two is larger") {
    ExprPool& exprs = graph.context->exprs;
    graph.symbols.push_back({.name = graph.intern("u2"), .asserts = {{exprs.parse("u0 < u1")}}});
    expected = {"type: s (aten.add.Tensor): add: sizes u0 and u1 of dimension 0 do not broadcast"};
  }
  CHECK(lines_of(graph, verify_graph(graph)) == expected);
  CHECK(lines_of(graph, verify_changes(graph, sound)) == expected);
}

TEST_CASE("calls that stay are not checked again, where symbols go those without any") {
  const Graph sound = load("dsv3_debug_ep2.1b_remat");
  Graph graph = sound;
  Context& context = *graph.context;
  const auto count = [&] {
    const UnchangedCalls unchanged(graph, sound);
    std::size_t calls = 0, of_symbols = 0;
    for (NodeId id : graph.step().order) {
      const Node& node = graph.step().nodes[id];
      if (node.kind != NodeKind::kCall || !unchanged.contains(id)) continue;
      ++calls;
      of_symbols += node.type && !mentions_only(context, node.type, [](StringId) { return false; });
    }
    return std::vector{calls, of_symbols};
  };
  CHECK(count() == std::vector<std::size_t>{3235, 1911});
  graph.symbols.push_back({.name = graph.intern("another")});
  CHECK(count() == std::vector<std::size_t>{3235, 1911});
  graph.symbols.erase(graph.symbols.begin());
  CHECK(count() == std::vector<std::size_t>{1219, 0});
}

TEST_CASE("each structural invariant has its violation") {
  const Graph sound = load("dsv3_debug_ep2.1b_remat");
  Graph graph = sound;
  Body& step = graph.step();
  const NodeId mm = first_call(graph, "aten.mm.default");
  const std::string mm_name(graph.text(step.nodes[mm].name));
  std::string expected, at = mm_name;

  SECTION("step-present") {
    step.name = graph.intern("not the step");
    expected = "step-present", at = "";
  }
  SECTION("order") {
    step.order.push_back(mm);
    expected = "order";
  }
  SECTION("unique-names") {
    step.nodes[mm].name = step.nodes[first_call(graph, "aten.t.default")].name;
    expected = "unique-names", at = graph.text(step.nodes[mm].name);
  }
  SECTION("resolved-refs") {
    const Arg args[] = {Arg::named(ArgKind::kUnresolved, graph.intern("nobody"))};
    step.nodes[mm].args = graph.context->args.add(args);
    expected = "resolved-refs";
  }
  SECTION("a reference to a node that does not execute") {
    std::erase(step.order, first_call(graph, "aten.t.default"));
    expected = "resolved-refs", at = "";
  }
  SECTION("defined-first") {
    std::erase(step.order, mm);
    step.order.insert(std::find_if(step.order.begin(), step.order.end(),
                                   [&](NodeId id) { return step.nodes[id].kind != NodeKind::kPlaceholder; }),
                      mm);
    expected = "defined-first";
  }
  SECTION("one-output") {
    step.order.pop_back();
    expected = "one-output", at = "";
  }
  SECTION("placeholders") {
    std::swap(graph.inputs[0], graph.inputs[1]);
    expected = "placeholders", at = graph.text(graph.inputs[1].name);
  }
  SECTION("outputs") {
    graph.outputs.pop_back();
    expected = "outputs", at = "output";
  }
  SECTION("nested-graphs") {
    graph.bodies.pop_back();
    expected = "nested-graphs", at = "";
  }
  SECTION("symbols") {
    graph.symbols.push_back(graph.symbols.front());
    expected = "symbols", at = "";
  }
  SECTION("world") {
    const auto say = [&](Arg rank, Arg size) {
      set_info(graph, "rank", rank);
      set_info(graph, "world_size", size);
    };
    SECTION("a rank") {
      say(Arg::integer(-1), Arg::integer(2));
    }
    SECTION("a number of ranks") {
      say(Arg::integer(0), Arg::integer(0));
    }
    SECTION("a rank of the world") {
      say(Arg::integer(2), Arg::integer(2));
    }
    SECTION("a whole number") {
      say(Arg::boolean(true), Arg::integer(2));
    }
    expected = "world", at = "";
  }
  SECTION("kwargs") {
    const Arg name = Arg::text(graph.intern("out_dtype"));
    const Arg kwargs[] = {name, Arg::none(), name, Arg::none()};
    step.nodes[mm].kwargs = graph.context->args.add(kwargs);
    expected = "kwargs";
  }
  const std::vector<Violation> found = verify_graph(graph);
  REQUIRE_FALSE(found.empty());
  CHECK(std::any_of(found.begin(), found.end(), [&](const Violation& v) {
    return v.invariant == expected && (at.empty() || v.site.node == at);
  }));
}

TEST_CASE("calls that do not fit their schema are found") {
  Graph graph = load("dsv3_debug_ep2.1b_remat");
  Node& mm = graph.step().nodes[first_call(graph, "aten.mm.default")];
  const Arg kwargs[] = {Arg::text(graph.intern("dims")), Arg::integer(3)};
  mm.kwargs = graph.context->args.add(kwargs);
  const std::vector<Violation> found = verify_graph(graph);
  REQUIRE(found.size() == 1);
  CHECK(print_violation(graph, found[0]) == "schema: " + std::string(graph.text(mm.name)) +
                                                " (aten.mm.default, " + std::string(graph.text(mm.module)) +
                                                "): the schema has no parameter 'dims'");
}

TEST_CASE("a symbol without its binding is found, and one bound twice") {
  Graph graph = load("dsv3_debug_ep2.1b_remat");
  Node& item = graph.step().nodes[first_call(graph, "aten._local_scalar_dense.default")];
  SECTION("unbound") {
    item.extra = nullptr;
    CHECK(names(verify_graph(graph), "symbols-bound", graph.text(item.name)));
  }
  SECTION("twice") {
    const NodeId t = first_call(graph, "aten.t.default");
    graph.step().nodes[t].extra = item.extra;
    CHECK(count_violations(graph)["bindings"] == 1);
  }
}

TEST_CASE("a symbol that was traced outside of its range is found") {
  Graph graph = load("dsv3_debug_ep2.1b_remat");
  Symbol& symbol = *std::ranges::find_if(graph.symbols, [](const Symbol& s) { return s.hint && s.lower; });
  symbol.lower = graph.context->exprs.number(16);
  symbol.upper = graph.context->exprs.number(64);
  const auto is_sound = [&](std::int64_t hint) {
    symbol.hint = hint;
    return count_violations(graph)["symbol-hints"] == 0;
  };
  CHECK(is_sound(16));
  CHECK(is_sound(64));
  CHECK_FALSE(is_sound(15));
  CHECK_FALSE(is_sound(65));
}

TEST_CASE("a result read before its wait is found") {
  Graph graph = load("dsv3_debug_ep2.1b_remat");
  const NodeId wait = first_call(graph, "_c10d_functional.wait_tensor.default");
  Node& node = graph.step().nodes[wait];
  node.target = graph.intern("aten.clone.default");
  resolve_op(*graph.context, node);
  const auto counts = count_violations(graph);
  CHECK(counts == std::map<std::string, int>{{"waits", 2}});  // read without a wait; never waited on
}

TEST_CASE("a backward may be laid out as torch's formula or as its kernel gives it") {
  const auto softplus = [](const std::string& strides) {
    const Graph graph = parse_text(
        "epweave text 1\ndevice cpu\n\ngraph\n"
        "  %g = placeholder : f32[4, 3]{1, 4} role=user which=g\n"
        "  %x = placeholder : f32[4, 3]{3, 1} role=user which=x\n"
        "  %y = aten.softplus_backward.default(%g, %x, 1, 20) : f32[4, 3]" +
            strides + "\n  output([%y])\n",
        "test.txt");
    return count_violations(graph);
  };
  CHECK(softplus("{3, 1}").empty());
  CHECK(softplus("{1, 4}").empty());
  CHECK(softplus("{6, 1}") == std::map<std::string, int>{{"type", 1}});
}

TEST_CASE("memory of a launch is left alone until its wait") {
  const auto broken = [](std::string_view nodes) {
    const Graph graph = parse_text(
        fmt::format("epweave text 1\ndevice cpu\ngroup g ranks=[0, 1]\n\ngraph\n"
                    "  %x = placeholder : f32[4] role=user which=x\n  %e = aten.exp.default(%x) : f32[4]\n"
                    "  %v = aten.view.default(%e, [2, 2]) : f32[2, 2]\n"
                    "  %s0 = aten.slice.Tensor(%e, 0, 0, 2) : f32[2]\n  %s1 = aten.slice.Tensor(%e, 0, 2, 4) "
                    ": f32[2]+\"2\"\n"
                    "{}  output([%e])\n",
                    nodes),
        "test.txt");
    std::string found;
    for (const Violation& violation : verify_graph(graph))
      found += fmt::format("{}: {}\n", violation.invariant, violation.message);
    return found;
  };
  const std::string in_place = "  %r = _c10d_functional.all_reduce_.default(%e, \"sum\", \"g\") : f32[4]\n",
                    sent = "  %r = _c10d_functional.all_reduce.default(%e, \"sum\", \"g\") : f32[4]\n",
                    of_slice = "  %r = _c10d_functional.all_reduce_.default(%s0, \"sum\", \"g\") : f32[2]\n",
                    wait = "  %w = _c10d_functional.wait_tensor.default(%r) : f32[4]\n",
                    wait_slice = "  %w = _c10d_functional.wait_tensor.default(%r) : f32[2]\n";
  const std::string read = "  %n = aten.neg.default(%v) : f32[2, 2]\n",
                    write = "  %n = aten.mul_.Scalar(%v, 2) : f32[2, 2]\n";
  CHECK(broken(in_place + read + wait) == "waits: reads v, which r writes until it is waited on\n");
  CHECK(broken(in_place + write + wait) == "waits: writes v, which r writes until it is waited on\n");
  CHECK(broken(in_place + wait + read) == "");
  CHECK(broken(sent + read + wait) == "");
  CHECK(broken(sent + write + wait) == "waits: writes v, which r sends until it is waited on\n");
  CHECK(broken(sent + wait + write) == "");
  CHECK(broken(of_slice + read + wait_slice) == "waits: reads v, which r writes until it is waited on\n");
  CHECK(broken(of_slice + "  %n = aten.neg.default(%s1) : f32[2]\n" + wait_slice) == "");
  CHECK(
      broken(of_slice +
             "  %m = aten.slice.Tensor(%e, 0, 1, 3) : f32[2]+\"1\"\n  %n = aten.neg.default(%m) : f32[2]\n" +
             wait_slice) == "waits: reads m, which r writes until it is waited on\n");
  CHECK(broken(in_place + "  %n = mine.odd.default(%v)\n" + wait) ==
        "waits: reads v, which r writes until it is waited on\n");
}

TEST_CASE("a collective of no group is found") {
  Graph graph = load("dsv3_debug_ep2.1b_remat");
  graph.groups.clear();
  CHECK(count_violations(graph)["groups"] > 100);
}

TEST_CASE("chunk fields must say which region, role and part") {
  Graph graph = load("dsv3_debug_ep2.1b_remat");
  Node& node = graph.step().nodes[first_call(graph, "aten.mm.default")];
  const auto [role, part, count] =
      GENERATE(table<std::string, std::optional<std::int32_t>, int>({{"body", 0, 0},
                                                                     {"body", std::nullopt, 1},
                                                                     {"nonsense", 0, 1},
                                                                     {"chunk_input", std::nullopt, 0},
                                                                     {"body", -1, 1}}));
  node.chunk.region = graph.intern("layers.1.moe");
  node.chunk.role = graph.intern(role);
  node.chunk.part = part;
  CHECK(count_violations(graph)["chunk-fields"] == count);
}

TEST_CASE("provenance that cannot be true is found") {
  Graph graph = load("dsv3_debug_ep2.1b_remat");
  graph.passes.emplace_back();
  const StringId pass = graph.intern("p");
  for (NodeId id : graph.step().order) {
    Node& node = graph.step().nodes[id];
    graph.origins.push_back({node.name, node.target});
    append_provenance(*graph.context, node,
                      {.pass = pass, .role = ProvenanceRole::kKept, .origins = {node.name}});
  }
  REQUIRE(verify_graph(graph).empty());
  Node& mm = graph.step().nodes[first_call(graph, "aten.mm.default")];
  Provenance record = mm.provenance.front();
  std::string expected;
  SECTION("none") {
    mm.provenance = {};
    expected = "origin-covered";
  }
  SECTION("an origin that is not there") {
    record.origins = {graph.intern("nobody")};
    replace_last_provenance(*graph.context, mm, record);
    expected = "origin-exists";
  }
  SECTION("an origin that is another op") {
    record.origins = {graph.step().nodes[first_call(graph, "aten.t.default")].name};
    replace_last_provenance(*graph.context, mm, record);
    expected = "origin-target";
  }
  SECTION("a part beyond the last") {
    record.part = record.parts = 2;
    replace_last_provenance(*graph.context, mm, record);
    expected = "origin-parts";
  }
  CHECK(names(verify_graph(graph), expected, graph.text(mm.name)));
}

}  // namespace
}  // namespace epweave
