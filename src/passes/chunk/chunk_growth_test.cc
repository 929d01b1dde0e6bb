// Long and much shared arithmetic and chains of views: chunk takes no stack for them, and looks at
// each once.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "passes/chunk/chunk.h"
#include "passes/test_text.h"

namespace epweave {
namespace {

constexpr std::string_view kGrowthHead = R"(
device cpu
symbol u0 range=[2, 64] hint=8 backed

graph
  %x = placeholder : f32[u0, 3] role=user which=x
  %r = aten.relu.default(%x) : f32[u0, 3] @layers.0
  %s = aten.sym_size.int(%r, 0) : SymInt(u0) @layers.0
)";

std::size_t chunked_size(const std::string& text) {
  const ChunkOptions options{.roots = {{"layers.*"}}, .require_exchange = false, .dense = true};
  return chunk(parse_test_graph(text), options).graph.step().order.size();
}

TEST_CASE("a comparison of long arithmetic on sizes is divided") {
  constexpr int kCount = 30000;
  std::string text =
      fmt::format("{}  %h0 = operator.floordiv(%s, 2) : SymInt(u0//2) @layers.0\n", kGrowthHead);
  for (int i = 1; i <= kCount; ++i)
    text += fmt::format("  %h{} = operator.add(%h{}, 1) : SymInt(u0//2 + {}) @layers.0\n", i, i - 1, i);
  text += fmt::format(
      "  %c = operator.ge(%h{}, 0) : SymBool(True) @layers.0\n"
      "  %a = aten._assert_scalar.default(%c, \"x\") @layers.0\n  output([%r])\n",
      kCount);
  CHECK(chunked_size(text) > kCount);
}

TEST_CASE("arithmetic that uses each result twice is looked at once") {
  std::string text =
      fmt::format("{}  %h0 = operator.floordiv(%s, 2) : SymInt(u0//2) @layers.0\n", kGrowthHead);
  std::int64_t factor = 1;
  for (int i = 1; i <= 50; ++i)
    text += fmt::format("  %h{0} = operator.add(%h{1}, %h{1}) : SymInt({2}*(u0//2)) @layers.0\n", i, i - 1,
                        factor *= 2);
  text +=
      "  %c = operator.ge(%h50, 0) : SymBool(True) @layers.0\n"
      "  %a = aten._assert_scalar.default(%c, \"x\") @layers.0\n  output([%r])\n";
  CHECK(chunked_size(text) < 300);
}

TEST_CASE("the whole of a long chain that is made of sizes is made again") {
  constexpr int kCount = 30000;
  std::string text =
      fmt::format("{}  %v0 = aten.zeros.default([%s, 3], device=@cpu) : f32[u0, 3] @layers.0\n", kGrowthHead);
  for (int i = 1; i <= kCount; ++i)
    text += fmt::format("  %v{} = aten.neg.default(%v{}) : f32[u0, 3] @layers.0\n", i, i - 1);
  text += fmt::format("  %t = aten.add.Tensor(%r, %v{0}) : f32[u0, 3] @layers.0\n  output([%t, %v{0}])\n",
                      kCount);
  CHECK(chunked_size(text) > 2 * kCount);
}

}  // namespace
}  // namespace epweave
