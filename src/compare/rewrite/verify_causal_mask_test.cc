// Faults in the mask that parts of scaled dot product attention have instead of is_causal.
#include "compare/rewrite/verify_causal_mask.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <functional>

#include "compare/rewrite/run_passes_test.h"
#include "compare/rewrite/verify_rewrite.h"
#include "ir/text/text.h"
#include "ops/rebind.h"

namespace epweave {
namespace {

constexpr std::string_view kAttention = R"(epweave text 1
device cpu
symbol u0 range=[4, 64] hint=20

graph
  %x = placeholder : f32[1, 2, u0, 8] role=user which=x
  %positions = placeholder : i64[u0] role=user which=positions
  %q = aten.sin.default(%x) : f32[1, 2, u0, 8] @layers.0
  %fa = aten._scaled_dot_product_efficient_attention.default(%q, %x, %x, None, True, 0.0, True) : (f32[1, 2, u0, 8]{16*u0, 8, 16, 1}, f32[1, 2, 32*((u0 + 31)//32)], i64[], i64[]) @layers.0
  %out = operator.getitem(%fa, 0) : f32[1, 2, u0, 8]{16*u0, 8, 16, 1} @layers.0
  output([%out])
)";

Node& find_in(Graph& graph, std::string_view name) {
  for (Node& node : graph.step().nodes)
    if (graph.text(node.name) == name) return node;
  FAIL("there is no node " << name);
  return graph.step().nodes[graph.step().order.front()];
}

// Gives a node another argument.
std::function<void(Graph&)> change(std::string_view name, std::size_t param,
                                   std::function<Arg(Graph&)> value) {
  return [=](Graph& g) { rebind(*g.context, find_in(g, name), {.param = param, .value = value(g)}); };
}
std::function<Arg(Graph&)> constant(Arg arg) {
  return [=](Graph&) { return arg; };
}

std::vector<std::string> faults_of(const Graph& a, const Graph& b) {
  std::vector<std::string> messages;
  for (const Violation& v : verify_rewrite(a, b).violations)
    if (v.invariant == "rewrite-attention") messages.push_back(v.message);
  return messages;
}

TEST_CASE(
    "masks need no wider rows where the tokens are known to be a multiple of what the kernel asks for") {
  std::string text(kAttention);
  const std::string_view symbol = "symbol u0 range=[4, 64] hint=20";
  text.replace(text.find(symbol), symbol.size(),
               "symbol u0 range=[48, 960] hint=48 asserts=[Eq(Mod(u0, 48), 0)]");
  const Graph graph = parse_text(text, "attention");
  const Graph parts = rewrite(graph, "chunk{roots=layers.*,dense=true,parts=3}");
  CHECK(print_text(parts).find("aten.triu") != std::string::npos);
  CHECK(print_text(parts).find("rounded") == std::string::npos);
  CHECK(verify_rewrite(graph, parts).violations.empty());
}

TEST_CASE("causal masks of parts are proved, as numbers too") {
  const Graph graph = parse_text(kAttention, "attention");
  for (const char* parts : {"parts=2", "parts=3", "parts=4", "sizes=[7,13]"})
    for (const char* then : {"", ",concretize"}) {
      const std::string pipeline = fmt::format("chunk{{roots=layers.*,dense=true,{}}}{}", parts, then);
      INFO(pipeline);
      CHECK(verify_rewrite(graph, rewrite(graph, pipeline)).violations.empty());
    }
}

TEST_CASE("faults in the causal mask of a part are found") {
  const Graph graph = parse_text(kAttention, "attention");
  const Graph sound = rewrite(graph, "chunk{roots=layers.*,dense=true,parts=3}");
  struct Fault {
    std::function<void(Graph&)> make;
    const char* message;
  };
  const std::string_view call = "fa_chunk1", cut = "fa_keys_chunk1", triangle = "fa_behind_chunk1",
                         full = "fa_hidden_chunk1";
  const auto node = [](std::string_view name) {
    return [=](Graph& g) {
      for (NodeId id : g.step().order)
        if (g.text(g.step().nodes[id].name) == name) return Arg::node(id);
      return Arg::none();
    };
  };
  // One row, or one column, of the triangle, which the expand would spread over all.
  const auto narrow = [&](std::string_view rows, std::string_view columns) {
    return [=](Graph& g) {
      Node& made = find_in(g, triangle);
      Type type = g.context->types[made.type];
      type.tensor.sizes = {g.context->exprs.parse(rows), g.context->exprs.parse(columns)};
      made.type = g.context->types.intern(std::move(type));
    };
  };
  // The bias as it is recorded.
  const auto retype = [&](std::function<void(Context&, TensorType&)> edit) {
    return [=](Graph& g) {
      Node& made = find_in(g, "fa_bias_chunk1");
      Type type = g.context->types[made.type];
      edit(*g.context, type.tensor);
      made.type = g.context->types.intern(std::move(type));
    };
  };
  const Fault faults[] = {
      {retype([](Context&, TensorType& type) { type.dtype = DType::kBfloat16; }),
       "it is torch.bfloat16, the queries are torch.float32"},
      {retype([](Context& context, TensorType& type) { type.device = context.strings.intern("cuda:0"); }),
       "it is on another device than the queries"},
      {retype([](Context& context, TensorType& type) { type.sizes[1] = context.exprs.number(1); }),
       "it has other batches or heads than the queries"},
      {narrow("(2*u0)//3 - u0//3", "u0"), "its rows do not begin at multiples of 16 elements"},
      {[&](Graph& g) {
         rebind(*g.context, find_in(g, call), {.param = 3});
         rebind(*g.context, find_in(g, call), {.param = 6, .value = Arg::boolean(true)});
       },
       "is_causal counts queries from 0, the part begins at row (u0//3) and sees all keys"},
      {change(call, 3, constant(Arg::none())), "it is no expand"},
      {change(call, 3, node("fa_bias_chunk2")),
       "it has other rows than the queries, or other columns than the keys"},
      {change(cut, 2, constant(Arg::integer(1))), "it does not have the keys from the first to the last"},
      {change(cut, 0, node("fa_hidden_chunk1")), "it is no upper triangle"},
      {change(triangle, 1, constant(Arg::integer(1))), "its diagonal is another"},
      {change(triangle, 1, node("u0_cut1")), "its diagonal is another"},
      {change(full, 1, constant(Arg::real(0))), "it is not made of -inf"},
      {narrow("1", "16*((u0 + 15)//16)"), "it is spread from other rows or columns than there are"},
      {narrow("(2*u0)//3 - u0//3", "1"), "it is spread from other rows or columns than there are"},
  };
  for (const Fault& fault : faults) {
    INFO(fault.message);
    Graph broken = sound;
    fault.make(broken);
    const auto messages = faults_of(graph, broken);
    REQUIRE(messages.size() == 1);
    CHECK(messages[0].find(fault.message) != std::string::npos);
  }
  CHECK(faults_of(graph, sound).empty());
}

TEST_CASE("a part's call may leave out what the schema gives") {
  const Graph graph = parse_text(kAttention, "attention");
  Graph rewritten = rewrite(graph, "chunk{roots=layers.*,dense=true,parts=2}");
  for (const char* name : {"fa_chunk0", "fa_chunk1"}) {
    Node& call = find_in(rewritten, name);
    const auto args = rewritten.context->args[call.args];
    REQUIRE(args.size() == 7);  // dropout_p = 0.0 and is_causal = False behind the first five
    call.args = rewritten.context->args.add(std::vector<Arg>(args.begin(), args.begin() + 5));
  }
  CHECK(verify_rewrite(graph, rewritten).violations.empty());
  // What it gives otherwise than by default counts.
  rebind(*rewritten.context, find_in(rewritten, "fa_chunk1"), {.param = 5, .value = Arg::real(0.5)});
  CHECK(!verify_rewrite(graph, rewritten).violations.empty());
}

}  // namespace
}  // namespace epweave
