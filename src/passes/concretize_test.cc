// Ids G1 ... G6 are those of the acceptance list.
#include "passes/concretize.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/text.h"

namespace epweave {
namespace {

const std::string kHead =
    "epweave text 1\ndevice cuda:0\nsymbol b range=[2, 4] hint=4 unbacked asserts=[b <= 4]\n";

// The body of the result, as it was written.
std::string concretize_text(const std::string& rest, const std::string& head = kHead) {
  std::string text = print_text(concretize(parse_text(head + rest, "test.txt")).graph);
  // Provenance is checked on its own.
  for (std::size_t at = 0; (at = text.find(" from(")) != text.npos;) text.erase(at, text.find('\n', at) - at);
  return text.substr(text.find("\ngraph") + 1);
}

std::string refusal_of(const std::string& rest, const std::string& head = kHead) {
  try {
    concretize_text(rest, head);
  } catch (const PassError& error) {
    return error.id();
  }
  return "fine";
}

}  // namespace

TEST_CASE("token extents become numbers, scalars that compute them go away") {
  CHECK(concretize_text(R"(graph
  %x = placeholder : f32[2*b, 3] hints(b=4)
  %n = aten.sym_size.int(%x, 0) : SymInt(2*b)
  %h = operator.floordiv(%n, 2) : SymInt(b)
  %v = aten.reshape.default(%x, [%h, -1]) : f32[b, 6]
  output([%v, %n])
)") == R"(graph
  %x = placeholder : f32[8, 3]
  %v = aten.reshape.default(%x, [4, -1]) : f32[4, 6]
  output([%v, 8])
)");
}

TEST_CASE("changed nodes say which numbers") {
  const PassResult result = concretize(parse_text(kHead + R"(graph
  %x = placeholder : f32[b]
  %y = aten.neg.default(%x) : f32[b]
  %z = aten.sum.default(%y) : f32[]
  output([%z])
)",
                                                  "test.txt"));
  const auto& nodes = result.graph.step().nodes;
  REQUIRE(nodes[NodeId(1U)].provenance.size() == 1);
  CHECK(nodes[NodeId(1U)].provenance[0].role == ProvenanceRole::kSpecialized);
  CHECK(result.graph.text(nodes[NodeId(1U)].provenance[0].reason) == "b = 4");
  CHECK(nodes[NodeId(2U)].provenance.empty());
  CHECK(result.graph.symbols.empty());
}

TEST_CASE("G1, G2: nested graphs and example values") {
  CHECK(concretize_text(R"(graph
  %x = placeholder : f32[b] example=SymInt(b)
  %g = get_attr attr=graph(inner)
  output([%x])
graph inner
  %y = placeholder : f32[b]
  %n = placeholder : SymInt(b)
  %m = operator.add(%n, 1) : SymInt(b + 1)
  output(%m)
)") == R"(graph
  %x = placeholder : f32[4] example==4
  %g = get_attr attr=graph(inner)
  output([%x])

graph inner
  %y = placeholder : f32[4]
  %n = placeholder : =4
  output(5)
)");
}

TEST_CASE("G3: recorded strides are kept, other symbols too, guards that hold go") {
  CHECK(concretize_text(R"(graph
  %x = placeholder : f32[b, 4096, 16, 192]
  %t = aten.transpose.int(%x, 1, 2) : f32[b, 16, 4096, 192]{12582912, 192, 3072, 1}
  %k = mine.pair.default(%x) : (f32[b, 2], f32[other + b])
  %n = aten.sym_size.int(%x, 0) : SymInt(b)
  %c = operator.ge(%n, 2) : SymBool(b >= 2)
  %a = aten._assert_scalar.default(%c, "enough")
  %i = torch.sym_ite(%c, %n, 2) : SymInt(b)
  output([%t, %k, %i])
)",
                        kHead + "symbol other hint=3 unbacked\n") == R"(graph
  %x = placeholder : f32[4, 4096, 16, 192]
  %t = aten.transpose.int(%x, 1, 2) : f32[4, 16, 4096, 192]{12582912, 192, 3072, 1}
  %k = mine.pair.default(%x) : (f32[4, 2], f32[other + 4])
  output([%t, %k, 4])
)");
}

TEST_CASE("G4: a guard that does not hold is declined") {
  CHECK(refusal_of(R"(graph
  %x = placeholder : f32[b]
  %n = aten.sym_size.int(%x, 0) : SymInt(b)
  %c = operator.eq(%n, 8) : SymBool(Eq(b, 8))
  %a = aten._assert_scalar.default(%c, "must be 8")
  output([%x])
)") == "concretize.false-guard");
  CHECK(refusal_of("graph\n  %x = placeholder : f32[b]\n  output([%x])\n",
                   "epweave text 1\nsymbol b hint=4 asserts=[8 <= b]\n") == "concretize.false-guard");
}

TEST_CASE("guards about what the graph computes stay") {
  const std::string text = concretize_text(R"(graph
  %x = placeholder : f32[b]
  %i = aten._local_scalar_dense.default(%x) : SymInt(u)
  %c = operator.ge(%i, 2) : SymBool(u >= 2)
  %a = aten._assert_scalar.default(%c, "enough")
  %y = aten.new_empty.default(%x, [%i]) : f32[u]
  output([%y])
)",
                                           kHead + "symbol u hint=3 unbacked\n");
  CHECK(text == R"(graph
  %x = placeholder : f32[4]
  %i = aten._local_scalar_dense.default(%x) : SymInt(u)
  %c = operator.ge(%i, 2) : SymBool(u >= 2)
  %a = aten._assert_scalar.default(%c, "enough")
  %y = aten.new_empty.default(%x, [%i]) : f32[u]
  output([%y])
)");
}

TEST_CASE("G5: recorded values are substituted, not computed anew") {
  CHECK(concretize_text(R"(graph
  %x = placeholder : f32[256*b]
  %n = aten.sym_size.int(%x, 0) : SymInt(256*b)
  %s = aten.slice.Tensor(%x, 0, 0, %n) : f32[stale]
  output([%s])
)",
                        kHead + "symbol stale hint=7 unbacked\n") == R"(graph
  %x = placeholder : f32[1024]
  %s = aten.slice.Tensor(%x, 0, 0, 1024) : f32[stale]
  output([%s])
)");
}

TEST_CASE("G6: other symbols of placeholders become numbers too; N-1 where they have none") {
  const std::string graph = "graph\n  %x = placeholder : f32[b, s] hints(b=4)\n  output([%x])\n";
  CHECK(concretize_text(graph, kHead + "symbol s hint=8\n") ==
        "graph\n  %x = placeholder : f32[4, 8]\n  output([%x])\n");
  CHECK(refusal_of(graph, kHead + "symbol s\n") == "concretize.no-hint");
}

TEST_CASE("a graph without token symbols is left alone") {
  const Graph graph =
      parse_text("epweave text 1\ngraph\n  %x = placeholder : f32[4]\n  output([%x])\n", "test.txt");
  CHECK(print_text(concretize(graph).graph) == print_text(graph));
}

}  // namespace epweave
