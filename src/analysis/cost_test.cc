#include "analysis/cost.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/text.h"

namespace epweave {
namespace {

// "operations bytes" of the last call, "?" behind what is not known.
std::string cost_of(std::string_view body) {
  const Graph graph = parse_text(
      fmt::format("epweave text 1\ndevice cuda:0\nsymbol u hint=4\nsymbol v\ngraph\n{}  output([])\n", body),
      "test.txt");
  const auto& order = graph.step().order;
  const Cost cost = CostModel(graph).cost_of(graph.step(), order[order.size() - 2]);
  return fmt::format("{} {}{}", cost.operations, cost.bytes, cost.is_known ? "" : "?");
}

}  // namespace

TEST_CASE("matrix products: 2*m*k*n, every tensor once") {
  const std::string a = "  %a = placeholder : bf16[u, 8]\n", b = "  %b = placeholder : bf16[8, 16]\n";
  CHECK(cost_of(a + b + "  %c = aten.mm.default(%a, %b) : bf16[u, 16]\n") == "1024 448");
  CHECK(cost_of(a + b + "  %d = placeholder : bf16[16]\n" +
                "  %c = aten.addmm.default(%d, %a, %b) : bf16[u, 16]\n") == "1024 480");
  CHECK(cost_of("  %a = placeholder : f32[2, 4, 8]\n  %b = placeholder : f32[2, 8, 16]\n"
                "  %c = aten.bmm.default(%a, %b) : f32[2, 4, 16]\n") == "2048 1792");
  CHECK(cost_of("  %a = placeholder : f32[4, 8]\n  %b = placeholder : f32[8]\n"
                "  %c = aten.mv.default(%a, %b) : f32[4]\n") == "64 176");
}

TEST_CASE("grouped products, over rows and over the shared extent") {
  const std::string offsets = "  %o = placeholder : i32[3]\n";
  CHECK(cost_of("  %a = placeholder : bf16[4, 8]\n  %b = placeholder : bf16[3, 8, 16]\n" + offsets +
                "  %c = aten._grouped_mm.default(%a, %b, %o) : bf16[4, 16]\n") == "1024 972");
  CHECK(cost_of("  %a = placeholder : bf16[8, 4]\n  %b = placeholder : bf16[4, 16]\n" + offsets +
                "  %c = aten._grouped_mm.default(%a, %b, %o) : bf16[3, 8, 16]\n") == "1024 972");
}

TEST_CASE("attention: two products of queries with keys and values") {
  const std::string q = "  %q = placeholder : bf16[1, 2, 16, 8]\n";
  CHECK(cost_of(
            q +
            "  %a = aten._scaled_dot_product_flash_attention.default(%q, %q, %q) : (bf16[1, 2, 16, 8])\n") ==
        "16384 1024");
}

TEST_CASE("other kernels count bytes; an extent without a number is not known") {
  CHECK(cost_of("  %a = placeholder : f32[4, 8]\n  %b = aten.add.Tensor(%a, %a) : f32[4, 8]\n") == "0 256");
  CHECK(cost_of("  %a = placeholder : f32[v, 8]\n  %b = aten.neg.default(%a) : f32[v, 8]\n") == "0 0?");
  CHECK(cost_of("  %a = placeholder : f32[4, 8]\n  %b = mine.odd.default(%a) : f32[4, 8]\n") == "0 0?");
}

}  // namespace epweave
