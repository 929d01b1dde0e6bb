// More in testdata/concretize.
#include "passes/concretize.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/text/text.h"

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

TEST_CASE("a graph without token symbols is left alone") {
  const Graph graph =
      parse_text("epweave text 1\ngraph\n  %x = placeholder : f32[4]\n  output([%x])\n", "test.txt");
  CHECK(print_text(concretize(graph).graph) == print_text(graph));
}

}  // namespace epweave
