#include "ops/type_memo.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "io/file.h"
#include "ir/walk.h"
#include "ops/op.h"
#include "ops/type_rules.h"

namespace epweave {
namespace {

std::vector<std::filesystem::path> committed_graphs() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(EPWEAVE_SOURCE_DIR "/testdata/graphs"))
    if (entry.path().string().find(".epw.gz") != std::string::npos &&
        entry.path().string().find("_L") == std::string::npos &&
        entry.path().string().find("671b") == std::string::npos)
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The type of a call, or why it has none.
template <class Infer>
std::string describe(const Context& context, const Infer& infer) {
  try {
    return print_type(context, infer());
  } catch (const TypeMismatch& mismatch) {
    return mismatch.what();
  }
}

TEST_CASE("a word table tells keys apart that begin alike") {
  WordTable keys;
  const auto intern = [&](std::initializer_list<std::uint64_t> words) {
    for (std::uint64_t word : words) keys.push(word);
    return keys.intern().number;
  };
  CHECK(intern({1, 2}) == 0);
  CHECK(intern({1}) == 1);
  CHECK(intern({1, 2, 3}) == 2);
  CHECK(intern({}) == 3);
  CHECK(intern({1, 2}) == 0);
  keys.push(7);
  keys.discard();
  CHECK(intern({1}) == 1);
  CHECK(intern({7}) == 4);
  for (std::uint64_t i = 0; i < 1000; ++i) REQUIRE(intern({9, i}) == 5 + i);
  for (std::uint64_t i = 0; i < 1000; ++i) REQUIRE(intern({9, i}) == 5 + i);
}

TEST_CASE("remembered types are those that the rules give, in every graph") {
  std::size_t calls = 0;
  std::vector<std::string> different;
  for (const std::filesystem::path& path : committed_graphs()) {
    const Graph graph = read_graph(path.string());
    Facts facts(graph), other_facts(graph);
    for (const Body& body : graph.bodies) {
      TypeMemo memo(facts);
      for (int round = 0; round < 2; ++round)
        for (const auto [id, node] : walk(body)) {
          if (!has_type_rule(node)) continue;
          const Node& call = node;
          const std::string known = describe(*graph.context, [&] { return memo.infer(graph, body, call); });
          if (known != describe(*graph.context, [&] { return infer_type(other_facts, graph, body, call); }))
            different.push_back(path.string() + ": " + std::string(graph.text(call.name)) + " " + known);
          ++calls;
        }
    }
  }
  CHECK(different == std::vector<std::string>());
  CHECK(calls > 100'000);
}

TEST_CASE("literals of different kinds and places are different calls") {
  Graph graph;
  graph.bodies.emplace_back();
  Context& context = *graph.context;
  const auto add = [&](NodeKind kind, std::string_view target, std::vector<Arg> args, TypeId type) {
    Node node;
    node.kind = kind;
    node.name = node.target = graph.intern(target);
    node.args = context.args.add(args);
    node.type = type;
    resolve_op(context, node);
    return graph.step().nodes.push_back(node);
  };
  TensorType tensor;
  tensor.device = graph.intern("cuda:0");
  tensor.dtype = DType::kInt64;
  tensor.sizes = {context.exprs.number(8), context.exprs.number(4)};
  tensor.strides = {context.exprs.number(4), context.exprs.number(1)};
  const Arg x = Arg::node(add(NodeKind::kPlaceholder, "x", {}, context.types.tensor(tensor)));
  Facts facts(graph);
  TypeMemo memo(facts);
  const auto type = [&](std::string_view target, std::vector<Arg> args) {
    const NodeId id = add(NodeKind::kCall, target, std::move(args), {});
    return print_type(context, memo.infer(graph, graph.step(), graph.step().nodes[id]));
  };
  CHECK(type("aten.mul.Tensor", {x, Arg::integer(1)}) == "i64[8, 4]{4, 1}@cuda:0");
  CHECK(type("aten.mul.Tensor", {x, Arg::real(1.0)}) == "f32[8, 4]{4, 1}@cuda:0");
  CHECK(type("aten.sym_size.int", {x, Arg::integer(0)}) == "SymInt(8)");
  CHECK(type("aten.sym_size.int", {x, Arg::integer(1)}) == "SymInt(4)");
  CHECK(type("aten.sym_size.int", {x, Arg::integer(0)}) == "SymInt(8)");
}

TEST_CASE("a walk back visits the nodes of a walk in the other order") {
  const Graph graph = read_graph(EPWEAVE_SOURCE_DIR "/testdata/graphs/dsv3_debug_ep2.1b_remat.epw.gz");
  std::vector<NodeId> there, back;
  for (const auto [id, node] : walk(*graph.context, graph.step())) there.push_back(id);
  for (const auto [id, node] : walk_back(*graph.context, graph.step())) back.push_back(id);
  CHECK(there == graph.step().order);
  std::reverse(back.begin(), back.end());
  CHECK(there == back);
}

}  // namespace
}  // namespace epweave
