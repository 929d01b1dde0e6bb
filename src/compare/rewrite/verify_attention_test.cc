// Faults in parts of FlexAttention calls: their block tables, the functions that count rows, and
// the row from which they count.
#include "compare/rewrite/verify_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "compare/rewrite/run_passes_test.h"
#include "compare/rewrite/verify_rewrite.h"
#include "compare/set_arg_test.h"
#include "io/file.h"
#include "ops/op.h"

namespace epweave {
namespace {

Graph read_block_graph() {
  return read_graph(
      fmt::format("{}/testdata/graphs/dsv3_debug_ep2_block.1b_remat.epw.gz", EPWEAVE_SOURCE_DIR));
}

Node& find(Body& body, const Graph& graph, std::string_view name) {
  for (Node& node : body.nodes)
    if (graph.text(node.name) == name) return node;
  FAIL("there is no node " << name);
  return body.nodes[body.order.front()];
}

Body& find_body(Graph& graph, std::string_view name) {
  const auto body =
      std::ranges::find_if(graph.bodies, [&](const Body& b) { return graph.text(b.name) == name; });
  REQUIRE(body != graph.bodies.end());
  return *body;
}

std::vector<Violation> attention_violations(const Graph& a, const Graph& b) {
  std::vector<Violation> found = verify_rewrite(a, b).violations;
  std::erase_if(found, [](const Violation& v) { return v.invariant != "rewrite-attention"; });
  return found;
}

TEST_CASE("parts of FlexAttention are proved in both modes, after concretize too") {
  const Graph graph = read_block_graph();
  for (const char* mode : {"whole-kv", "independent"})
    for (const char* parts : {"parts=2", "parts=8", "sizes=[256,384,384]"})
      for (const char* then : {"", ",dce,concretize"}) {
        const std::string pipeline =
            fmt::format("chunk{{roots=layers.*,{},attention={}}}{}", parts, mode, then);
        INFO(pipeline);
        CHECK(verify_rewrite(graph, rewrite(graph, pipeline)).violations.empty());
      }
}

TEST_CASE("faults in the mask of a part are found", "[repetitive]") {
  const Graph graph = read_block_graph();
  const Graph sound = rewrite(graph, "chunk{roots=layers.*,parts=4}");
  struct Fault {
    const char* what;
    std::function<void(Graph&)> make;
  };
  const Fault faults[] = {
      {"a mask that counts queries from 0",
       [](Graph& g) {
         Node& source = find(g.step(), g, "sdpa_mask2_chunk1");
         source.attr = Arg::named(ArgKind::kGraph, g.intern("sdpa_mask2"));
       }},
      {"the mask of another part",
       [](Graph& g) {
         Node& call = find(g.step(), g, "flex_attention_2_chunk1");
         call.args = find(g.step(), g, "flex_attention_2_chunk2").args;
       }},
      {"queries counted from 0 in one place",
       [](Graph& g) {
         Body& mask = find_body(g, "sdpa_mask2_chunk1");
         Node& causal = find(mask, g, "ge");
         const Node& sum = find(mask, g, "arg2_1_global");
         set_arg(g, causal, 0, g.context->args[sum.args][0]);
       }},
      {"keys counted from the part's first row",
       [](Graph& g) {
         Body& mask = find_body(g, "sdpa_mask2_chunk1");
         Node& sum = find(mask, g, "arg2_1_global");
         const Node& causal = find(mask, g, "ge");
         set_arg(g, sum, 0, g.context->args[causal.args][1]);
       }},
      {"another comparison in the mask",
       [](Graph& g) {
         Node& causal = find(find_body(g, "sdpa_mask2_chunk1"), g, "ge");
         causal.target = g.intern("aten.gt.Tensor");
         resolve_op(*g.context, causal);
       }},
      {"rows of blocks from another part",
       [](Graph& g) { set_arg(g, find(g.step(), g, "arg187_1_rows_chunk1"), 2, Arg::integer(3)); }},
      {"one row of blocks too few",
       [](Graph& g) { set_arg(g, find(g.step(), g, "arg186_1_rows_chunk1"), 3, Arg::integer(3)); }},
      {"blocks of queries counted from the wrong one",
       [](Graph& g) { set_arg(g, find(g.step(), g, "arg191_1_local_chunk1"), 1, Arg::integer(1)); }},
      {"blocks of queries before the part kept",
       [](Graph& g) { set_arg(g, find(g.step(), g, "arg191_1_is_from_chunk1"), 1, Arg::integer(1)); }},
      {"blocks of queries behind the part kept",
       [](Graph& g) { set_arg(g, find(g.step(), g, "arg191_1_is_before_chunk1"), 1, Arg::integer(5)); }},
      {"padding counted as blocks",
       [](Graph& g) {
         Node& within = find(g.step(), g, "arg191_1_is_behind_chunk1");
         set_arg(g, within, 0, g.context->args[within.args][1]);
       }},
      {"counts of other blocks than are listed",
       [](Graph& g) {
         Node& sum = find(g.step(), g, "arg190_1_columns_chunk1");
         sum.args = find(g.step(), g, "arg190_1_columns_chunk2").args;
       }},
  };
  for (const Fault& fault : faults) {
    INFO(fault.what);
    Graph broken = sound;
    fault.make(broken);
    CHECK_FALSE(attention_violations(graph, broken).empty());
  }
  CHECK(attention_violations(graph, sound).empty());
}

// Each way to change one argument of a call: a number, an item of a list, a keyword that it gives,
// one that it leaves out.
std::vector<std::pair<std::string, Node>> change_arguments(Graph& graph, const Node& node) {
  std::vector<std::pair<std::string, Node>> changed;
  ArgPool& pool = graph.context->args;
  const std::vector<Arg> args(pool[node.args].begin(), pool[node.args].end());
  const std::vector<Arg> kwargs(pool[node.kwargs].begin(), pool[node.kwargs].end());
  const auto with_arg = [&](std::size_t i, Arg value) {
    std::vector<Arg> other = args;
    other[i] = value;
    changed.emplace_back(fmt::format("argument {}", i), node).second.args = pool.add(other);
  };
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (args[i].is_int()) with_arg(i, Arg::integer(args[i].as_int() + 1));
    if (args[i].is_list()) with_arg(i, pool.add_tree(args[i].kind(), std::vector{Arg::integer(0)}));
  }
  for (std::size_t i = 0; i + 1 < kwargs.size(); i += 2) {
    std::vector<Arg> fewer = kwargs;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i),
                fewer.begin() + static_cast<std::ptrdiff_t>(i) + 2);
    changed.emplace_back(fmt::format("keyword {} dropped", graph.text(kwargs[i].as_name())), node)
        .second.kwargs = pool.add(fewer);
  }
  for (std::size_t i = args.size(); i < node.op->params.size(); ++i) {
    const OpParam& param = node.op->params[i];
    if (find_kwarg(*graph.context, node, param.name) != nullptr) continue;
    std::vector<Arg> more = kwargs;
    const Arg value = param.type == "bool" ? Arg::boolean(param.default_value != "True") : Arg::integer(2);
    if (param.type != "bool" && !param.type.starts_with("int") && !param.type.starts_with("SymInt") &&
        param.type != "Scalar")
      continue;
    more.insert(more.end(), {Arg::text(graph.intern(param.name)), value});
    changed.emplace_back(fmt::format("keyword {} added", param.name), node).second.kwargs = pool.add(more);
  }
  return changed;
}

TEST_CASE("each argument and keyword of the calls that make a part's block tables is compared", "[slow]") {
  const Graph graph = read_block_graph();
  const char* const mode = GENERATE("whole-kv", "independent");
  Graph sound = rewrite(graph, fmt::format("chunk{{roots=layers.*,parts=4,attention={}}}", mode));
  std::size_t calls = 0, changes = 0;
  for (NodeId id : std::vector<NodeId>(sound.step().order)) {
    const Node original = sound.step().nodes[id];
    const std::string_view name = sound.text(original.name);
    const bool is_recipe =
        !original.provenance.empty() && original.provenance.back().role == ProvenanceRole::kAdded &&
        name.ends_with("_chunk1") && original.kind == NodeKind::kCall && name.starts_with("arg");
    if (!is_recipe) continue;
    ++calls;
    for (const auto& [what, node] : change_arguments(sound, original)) {
      INFO(mode << ": " << what << " of " << name);
      sound.step().nodes[id] = node;
      CHECK_FALSE(attention_violations(graph, sound).empty());
      ++changes;
    }
    sound.step().nodes[id] = original;
  }
  CHECK(calls >= 20);
  CHECK(changes >= 50);
}

TEST_CASE("a part whose mask stays that of the whole is found") {
  const Graph graph = read_block_graph();
  Graph broken = rewrite(graph, "chunk{roots=layers.*}");
  Node& second = find(broken.step(), broken, "flex_attention_3_chunk1");
  // Its own operands with the whole's mask and captured values, as torchtitan has it.
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (graph.text(node.name) != "flex_attention_3") continue;
    set_arg(broken, second, 4, graph.context->args[node.args][4]);
    set_arg(broken, second, 8, graph.context->args[node.args][8]);
  }
  CHECK_FALSE(attention_violations(graph, broken).empty());
}

}  // namespace
}  // namespace epweave
