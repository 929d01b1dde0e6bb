// On real graphs: symbolize finds again what concretize made numbers, gives chunk what a symbolic
// trace gives it, and tags nothing that does not scale. Small graphs and refusals:
// testdata/symbolize.
#include "passes/symbolize.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <map>

#include "analysis/verify.h"
#include "io/file.h"
#include "ir/text/text.h"
#include "passes/chunk/chunk.h"
#include "passes/concretize.h"
#include "pipeline/pipeline.h"
#include "pipeline/registry.h"

namespace epweave {
namespace {

Graph read_real(const std::string& name) {
  return read_graph(fmt::format("{}/testdata/graphs/{}.epw.gz", EPWEAVE_SOURCE_DIR, name));
}

Graph symbolized(const Graph& graph) {
  return symbolize(graph, {}).graph;
}

void check_types(const Graph& graph) {
  std::vector<Violation> violations;
  verify_structure(graph, violations);
  Facts facts(graph);
  verify_types(graph, facts, violations);
  for (const Violation& violation : violations) UNSCOPED_INFO(print_violation(graph, violation));
  CHECK(violations.empty());
}

// The tensor types of a value.
std::vector<const TensorType*> tensors_of(const Graph& graph, TypeId id) {
  if (!id) return {};
  if (const TensorType* tensor = tensor_of(*graph.context, id)) return {tensor};
  std::vector<const TensorType*> result;
  for (TypeId element : graph.context->types[id].elements)
    if (const TensorType* tensor = tensor_of(*graph.context, element)) result.push_back(tensor);
  return result;
}

// How extents of one graph follow those of another, node by node of the same name.
struct Agreement {
  std::size_t right = 0, missed = 0, wrong = 0;
  std::map<std::string, std::size_t> missed_in;  // by module
  std::string first_wrong;
};

// An extent with the token count as given, and all other symbols as their names say.
std::optional<Rational> value(const Graph& graph, ExprId extent, StringId symbol, std::int64_t tokens) {
  const ExprPool& exprs = graph.context->exprs;
  return exprs.evaluate(exprs.poly(extent), [&](StringId s) -> std::optional<std::int64_t> {
    if (s == symbol) return tokens;
    return std::nullopt;
  });
}

bool mentions(const Graph& graph, ExprId extent, StringId symbol) {
  const auto& symbols = graph.context->exprs.symbols(extent);
  return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
}

Agreement compare(const Graph& expected, StringId expected_symbol, const Graph& found, StringId found_symbol,
                  std::int64_t tokens) {
  std::map<std::string_view, const Node*> by_name;
  for (NodeId id : expected.step().order)
    by_name[expected.text(expected.step().nodes[id].name)] = &expected.step().nodes[id];
  Agreement result;
  for (NodeId id : found.step().order) {
    const Node& node = found.step().nodes[id];
    const auto other = by_name.find(found.text(node.name));
    if (other == by_name.end()) continue;
    const auto a = tensors_of(expected, other->second->type), b = tensors_of(found, node.type);
    REQUIRE(a.size() == b.size());
    for (std::size_t t = 0; t < a.size(); ++t)
      for (std::size_t d = 0; d < a[t]->rank(); ++d) {
        const ExprId x = a[t]->sizes[d], y = b[t]->sizes[d];
        if (!mentions(expected, x, expected_symbol) && !mentions(found, y, found_symbol)) continue;
        bool same = true;
        for (std::int64_t factor : {1, 2})
          same &= value(expected, x, expected_symbol, factor * tokens) ==
                  value(found, y, found_symbol, factor * tokens);
        if (same) {
          ++result.right;
        } else if (!mentions(found, y, found_symbol)) {
          ++result.missed;
          ++result.missed_in[std::string(found.text(node.module))];
        } else if (++result.wrong == 1) {
          result.first_wrong = fmt::format("{}: {} is {}", found.text(node.name),
                                           expected.context->exprs.text(x), found.context->exprs.text(y));
        }
      }
  }
  return result;
}

const Symbol& symbol_called(const Graph& graph, std::string_view name) {
  for (const Symbol& symbol : graph.symbols)
    if (graph.text(symbol.name) == name) return symbol;
  FAIL("no symbol " << name);
  throw std::logic_error("unreachable");
}

// What chunk made, by region: how many nodes of each target, by what for.
std::map<std::string, std::map<std::string, std::size_t>> count_chunked(const Graph& graph) {
  std::map<std::string, std::map<std::string, std::size_t>> counts;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    if (!node.chunk.region) continue;
    const std::string region = fmt::format("{} {}", graph.text(node.chunk.region),
                                           node.chunk.backward.value_or(false) ? "bwd" : "fwd");
    ++counts[region][fmt::format("{} {}", graph.text(node.chunk.role), graph.text(node.target))];
  }
  return counts;
}

std::size_t count_made(const Graph& graph, std::string_view target, ProvenanceRole role) {
  std::size_t count = 0;
  for (NodeId id : graph.step().order) {
    const Node& node = graph.step().nodes[id];
    count += graph.text(node.target) == target && !node.provenance.empty() &&
             node.provenance.back().role == role && graph.text(node.provenance.back().pass) == "chunk";
  }
  return count;
}

}  // namespace

TEST_CASE("symbolize finds what concretize made numbers") {
  struct Case {
    const char* name;
    std::int64_t tokens;
    std::size_t right, left_as_numbers;
  };
  const Case cases[] = {
      {"dsv3_debug_ep2.1b_remat", 1024, 1572, 157},      {"dsv3_debug_ep4.1b_remat", 1024, 1572, 157},
      {"dsv3_debug_ep2_full.1b_remat", 1024, 1673, 157}, {"dsv3_debug_ep2_r030.1b_remat", 4, 2092, 1},
      {"dsv3_debug_ep2_coor.1b_remat", 1024, 1572, 157}, {"qwen3_moe_ep2.1b_remat", 1024, 2163, 157},
      {"dsv3_16b_ep8.1b_remat", 16384, 7221, 157}};
  for (const Case& test : cases) {
    const Graph original = read_real(test.name);
    const Graph found = symbolized(concretize(original).graph);
    INFO(test.name);
    check_types(found);
    const Agreement agreement =
        compare(original, original.intern("u0"), found, found.intern("s0"), test.tokens);
    INFO(agreement.first_wrong);
    CHECK(agreement.wrong == 0);
    CHECK(agreement.right == test.right);
    CHECK(agreement.missed == test.left_as_numbers);
    // Left as numbers: the pieces of the chunked loss, and what only an attention mask reads.
    for (const auto& [module, count] : agreement.missed_in) {
      INFO(module << " " << count);
      CHECK((module == "loss" || module == "lm_head" || (module.empty() && count == 1)));
    }
  }
}

TEST_CASE("a static graph chunks as the symbolic trace of the same model") {
  const ChunkOptions options{.parts = 2};
  const Graph expected = chunk(read_real("dsv3_debug_ep2.1b_remat"), options).graph;
  const Graph found = chunk(symbolized(read_real("dsv3_debug_ep2_static.1b_remat")), options).graph;
  check_types(found);
  CHECK(count_made(found, "aten.split_with_sizes.default", ProvenanceRole::kSplit) == 15);
  CHECK(count_made(found, "aten.add.Tensor", ProvenanceRole::kMaterialize) == 35);
  CHECK(count_made(found, "aten.cat.default", ProvenanceRole::kMaterialize) == 11);
  auto ours = count_chunked(found), theirs = count_chunked(expected);
  CHECK(ours.size() == 10);
  REQUIRE(ours.size() == theirs.size());
  // Where the symbolic trace reads and computes sizes in the region, the static one takes them from
  // its front.
  for (auto* counts : {&ours, &theirs})
    for (auto& [region, by_target] : *counts)
      for (const char* size : {"body aten.sym_size.int", "body operator.mul", "body operator.floordiv"})
        by_target.erase(size);
  for (const auto& [region, by_target] : theirs) {
    INFO(region);
    CHECK(ours[region] == by_target);
  }
  // The chunked static graph is static.
  const Graph concrete = concretize(found).graph;
  check_types(concrete);
  for (const Symbol& symbol : concrete.symbols) CHECK(concrete.text(symbol.name) != "s0");
}

TEST_CASE("concretize undoes symbolize") {
  for (const char* name : {"dsv3_debug_ep2_static.1b_remat", "llama3_debug_fsdp4.0_traced",
                           "dsv3_debug_ep1_fsdp4.1b_remat", "dsv3_debug_fsdp2_tp2_ep4.1b_remat"}) {
    const Graph graph = read_real(name);
    Graph back = concretize(symbolized(graph)).graph;
    for (NodeId id : back.step().order) back.step().nodes[id].provenance = {};
    INFO(name);
    REQUIRE(back.step().order.size() == graph.step().order.size());
    std::size_t different = 0;
    for (std::size_t i = 0; i < back.step().order.size(); ++i)
      different += print_node(back, back.step(), back.step().order[i], TextMode::kFull) !=
                   print_node(graph, graph.step(), graph.step().order[i], TextMode::kFull);
    CHECK(different == 0);
  }
}

TEST_CASE("what is tagged scales whatever the token count is") {
  for (const char* name : {"llama3_debug_fsdp4.0_traced", "dsv3_debug_ep1_fsdp4.1b_remat",
                           "dsv3_debug_fsdp2_tp2_ep4.1b_remat", "llama3_debug_fsdp2_tp2.0_traced"}) {
    Graph graph = symbolized(read_real(name));
    INFO(name);
    check_types(graph);
    // Without the number, any multiple of 8: all but the chunked loss, which literals cut,
    // type-checks.
    for (Symbol& symbol : graph.symbols)
      if (graph.text(symbol.name) == "s0") {
        symbol.assumptions = {graph.context->exprs.parse("Eq(Mod(s0, 8), 0)")};
        symbol.lower = graph.context->exprs.number(8);
        symbol.upper = graph.context->exprs.number(4096);
      }
    std::vector<Violation> violations;
    Facts facts(graph);
    verify_types(graph, facts, violations);
    for (const Violation& violation : violations) {
      INFO(print_violation(graph, violation));
      CHECK(violation.site.module == "loss");
    }
    // Nothing that is sharded with the parameters counts tokens.
    std::size_t position = 0;
    for (NodeId id : graph.step().order) {
      const Node& node = graph.step().nodes[id];
      if (node.kind != NodeKind::kPlaceholder) break;
      const bool is_user = graph.text(graph.inputs[position++].role) == "user";
      const TensorType* tensor = tensor_of(*graph.context, node.type);
      if (!is_user && tensor != nullptr)
        for (ExprId size : tensor->sizes) CHECK(graph.context->exprs.symbols(size).empty());
    }
  }
}

TEST_CASE("sequence parallelism halves the tokens of a rank") {
  const Graph graph = symbolized(read_real("dsv3_debug_fsdp2_tp2_ep4.1b_remat"));
  std::size_t halves = 0;
  const ExprId half = graph.context->exprs.parse("s0");
  CHECK(symbol_called(graph, "s0").hint == 512);
  for (NodeId id : graph.step().order)
    for (const TensorType* tensor : tensors_of(graph, graph.step().nodes[id].type))
      halves += static_cast<std::size_t>(std::count_if(
          tensor->sizes.begin(), tensor->sizes.end(),
          [&](ExprId size) { return graph.context->exprs.poly(size) == graph.context->exprs.poly(half); }));
  CHECK(halves > 200);
  const auto& asserts = *symbol_called(graph, "u3").asserts;
  CHECK(graph.context->exprs.text(asserts.back()) == "Eq(u0 + u1 + u2 + u3, 3*s0)");
}

TEST_CASE("symbolize leaves graphs with a token symbol alone") {
  const Graph symbolic = read_real("dsv3_debug_ep2.1b_remat");
  const PassResult result = symbolize(symbolic, {});
  CHECK(result.notes == std::vector<std::string>{"the tokens have a symbol: u0"});
  const Graph once = symbolized(read_real("dsv3_debug_ep2_static.1b_remat"));
  CHECK(print_text(symbolized(once)) == print_text(once));
}

TEST_CASE("an input that nothing but a mask reads is named") {
  const Graph graph = symbolize(read_real("dsv3_debug_ep2_static.1b_remat"),
                                {.inputs = {"tokens:0", "labels:0", "positions:0", "_closure_0:0"}})
                          .graph;
  check_types(graph);
  std::size_t inputs = 0, captured = 0;
  for (const Body& body : graph.bodies)
    for (NodeId id : body.order) {
      const Node& node = body.nodes[id];
      const TensorType* tensor = tensor_of(*graph.context, node.type);
      if (node.kind != NodeKind::kPlaceholder || tensor == nullptr || tensor->rank() != 1) continue;
      (body.name ? captured : inputs) += graph.context->exprs.text(tensor->sizes[0]) == "s0" ? 1U : 0U;
    }
  CHECK(inputs == 4);
  CHECK(captured == 12);  // six layers, forward and backward
}

TEST_CASE("ep-overlap symbolizes on demand") {
  const std::string plain = print_pipeline(expand_preset("ep-overlap", registry()));
  CHECK(plain.find("symbolize") == plain.npos);
  const std::string with = print_pipeline(expand_preset("ep-overlap{symbolize=yes}", registry()));
  CHECK(with.find("dedup-unshard,symbolize{inputs=[]},chunk{") != with.npos);
  for (const char* preset :
       {"ep-overlap{symbolize=[x:0,\"extra_kwargs['y']:1\"]}", "overlap{symbolize=[x:0,y:0]}"}) {
    const std::string named = print_pipeline(expand_preset(preset, registry()));
    CHECK(named.find("dedup-unshard,symbolize{inputs=[x:0") != named.npos);
  }
  CHECK_THROWS_AS(expand_preset("ep-overlap{symbolize=true}", registry()), UsageError);
}

}  // namespace epweave
