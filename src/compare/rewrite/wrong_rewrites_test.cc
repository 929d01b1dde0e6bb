// What makes wrong rewrites (testing/wrong_rewrites.h) takes any graph. One without symbols,
// passes, groups, nested graphs, inputs or results has places for fewer kinds.
#include "testing/wrong_rewrites.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "ir/text/text.h"

namespace epweave {
namespace {

// The kinds that so many draws give, of the graph and itself.
std::set<std::string> kinds_of(const std::string& text) {
  const Graph graph = parse_text("epweave text 1\ndevice cpu\n" + text, "step");
  WrongRewrites wrong(graph, graph, 7);
  std::set<std::string> kinds;
  for (int i = 0; i < 3000; ++i)
    if (const auto mutant = wrong.make()) kinds.insert(mutant->kind);
  return kinds;
}

TEST_CASE("wrong rewrites of a graph that no pass made") {
  const std::set<std::string> kinds = kinds_of(R"text(
graph
  %x = placeholder : f32[4, 4] role=user which=x
  %w = placeholder : f32[4, 4] role=parameter fqn=w
  %y = aten.sub.Tensor(%x, %w) : f32[4, 4]
  %z = aten.mul.Tensor(%y, 2.0) : f32[4, 4]
  output([%z, %y])
)text");
  CHECK(kinds == std::set<std::string>{"fault: another op",
                                       "fault: inputs in another order",
                                       "fault: kept node with another argument",
                                       "fault: operands swapped",
                                       "fault: operation done twice",
                                       "fault: operation left out",
                                       "fault: outputs swapped",
                                       "fault: scale or flag changed",
                                       "keyword",
                                       "keyword in the original",
                                       "left out",
                                       "left out in the original",
                                       "literal",
                                       "literal in the original",
                                       "operand",
                                       "operand in the original",
                                       "operands exchanged",
                                       "operands exchanged in the original",
                                       "recorded type",
                                       "returned value",
                                       "target",
                                       "target in the original"});
}

TEST_CASE("wrong rewrites of a graph without calls or results") {
  CHECK(kinds_of("graph\n  output([])\n") == std::set<std::string>());
}

}  // namespace
}  // namespace epweave
