#include "cost/cost.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/text/text.h"

namespace epweave {
namespace {

// Of the last call.
std::optional<Cost> last_cost(std::string_view body) {
  const Graph graph = parse_text(
      fmt::format("epweave text 1\ndevice cuda:0\ngroup ep ranks=[0, 1]\nsymbol u hint=4\nsymbol v\ngraph\n"
                  "{}  output([])\n",
                  body),
      "test.txt");
  const auto& order = graph.step().order;
  Extents extents(graph);
  return CostModel(graph, extents).cost_of(order[order.size() - 2]);
}

// "flops bytes message", or "?".
std::string cost_of(std::string_view body) {
  const std::optional<Cost> cost = last_cost(body);
  return cost ? fmt::format("{} {} {}", cost->flops, cost->bytes, cost->message) : "?";
}

TEST_CASE("matrix products: 2*m*k*n, and each operand whole") {
  const std::string a = "  %a = placeholder : bf16[u, 8]\n", b = "  %b = placeholder : bf16[8, 16]\n";
  CHECK(cost_of(a + b + "  %c = aten.mm.default(%a, %b) : bf16[u, 16]\n") == "1024 448 0");
  CHECK(cost_of(a + b + "  %d = placeholder : bf16[16]\n" +
                "  %c = aten.addmm.default(%d, %a, %b) : bf16[u, 16]\n") == "1024 480 0");
  const std::string stacks = "  %a = placeholder : f32[2, 4, 8]\n  %b = placeholder : f32[2, 8, 16]\n";
  CHECK(cost_of(stacks + "  %c = aten.bmm.default(%a, %b) : f32[2, 4, 16]\n") == "2048 1792 0");
  CHECK(cost_of(stacks + "  %d = placeholder : f32[2, 4, 16]\n" +
                "  %c = aten.baddbmm.default(%d, %a, %b) : f32[2, 4, 16]\n") == "2048 2304 0");
  CHECK(cost_of("  %a = placeholder : f32[4, 8]\n  %b = placeholder : f32[8]\n"
                "  %c = aten.mv.default(%a, %b) : f32[4]\n") == "64 176 0");
  CHECK(cost_of("  %a = placeholder : f32[8]\n  %c = aten.dot.default(%a, %a) : f32[]\n") == "16 68 0");
}

TEST_CASE("grouped products count each row once") {
  const std::string offsets = "  %o = placeholder : i32[3]\n";
  // Four rows, each for one of three experts.
  CHECK(cost_of("  %a = placeholder : bf16[4, 8]\n  %b = placeholder : bf16[3, 8, 16]\n" + offsets +
                "  %c = aten._grouped_mm.default(%a, %b, %o) : bf16[4, 16]\n") == "1024 972 0");
  // Four rows cut into three groups: three weight gradients.
  CHECK(cost_of("  %a = placeholder : bf16[8, 4]\n  %b = placeholder : bf16[4, 16]\n" + offsets +
                "  %c = aten._grouped_mm.default(%a, %b, %o) : bf16[3, 8, 16]\n") == "1024 972 0");
  // Three left factors, the columns of one right factor cut into three groups.
  CHECK(cost_of("  %a = placeholder : bf16[3, 4, 8]\n  %b = placeholder : bf16[8, 16]\n" + offsets +
                "  %c = aten._grouped_mm.default(%a, %b, %o) : bf16[4, 16]\n") == "1024 588 0");
}

TEST_CASE("convolutions: each window meets the whole weight; two such products backward") {
  const std::string operands = "  %x = placeholder : f32[u, 6, 10]\n  %w = placeholder : f32[4, 3, 5]\n",
                    made = "[1], [0], [1], False, [0], 2";
  // 4 rows of 6 windows, 60 weights.
  CHECK(cost_of(operands + "  %y = aten.convolution.default(%x, %w, None, " + made + ") : f32[u, 4, 6]\n") ==
        "2880 1584 0");
  const std::string gradient = operands +
                               "  %g = placeholder : f32[u, 4, 6]\n  %y = "
                               "aten.convolution_backward.default(%g, %x, %w, [4], " +
                               made;
  CHECK(cost_of(gradient + ", [True, True, True]) : (f32[u, 6, 10], f32[4, 3, 5], f32[4])\n") ==
        "5760 2800 0");
  CHECK(cost_of(gradient + ", [False, True, False]) : (=None, f32[4, 3, 5], =None)\n") == "2880 1824 0");
  // Transposed: each of 4 rows of 10 elements meets 6 * 2 * 5 weights.
  CHECK(cost_of(
            "  %x = placeholder : f32[u, 6, 10]\n  %w = placeholder : f32[6, 2, 5]\n"
            "  %y = aten.convolution.default(%x, %w, None, [2], [0], [1], True, [0], 1) : f32[u, 2, 23]\n") ==
        "4800 1936 0");
}

TEST_CASE("attention: scores of queries and keys, and their sums of values; 2.5 times that backward") {
  const std::string qkv =
      "  %q = placeholder : bf16[2, 3, 8, 6]\n  %k = placeholder : bf16[2, 3, 16, 6]\n"
      "  %v = placeholder : bf16[2, 3, 16, 4]\n";
  const std::int64_t forward = 2 * (2 * 3 * 8) * 16 * (6 + 4);
  const auto flops = [&](const std::string& call) {
    const std::optional<Cost> cost = last_cost(qkv + call);
    REQUIRE(cost);
    return cost->flops;
  };
  CHECK(flops("  %a = aten._scaled_dot_product_flash_attention.default(%q, %k, %v)\n") == forward);
  CHECK(
      flops("  %o = placeholder : bf16[2, 3, 8, 4]\n  %l = placeholder : f32[2, 3, 8]\n"
            "  %r = placeholder : u64[2]\n"
            "  %a = aten._scaled_dot_product_flash_attention_backward.default(%o, %q, %k, %v, %o, %l, None, "
            "None, 8, 16, 0.0, True, %r, %r)\n") == forward / 2 * 5);
  // Rows without batch and heads have no formula here.
  CHECK(cost_of("  %q = placeholder : bf16[8, 6]\n"
                "  %a = aten._scaled_dot_product_flash_attention.default(%q, %q, %q)\n") == "?");
}

TEST_CASE("other kernels move operands and results; views and waits move nothing") {
  CHECK(cost_of("  %a = placeholder : f32[4, 8]\n  %b = aten.add.Tensor(%a, %a) : f32[4, 8]\n") == "0 384 0");
  CHECK(cost_of("  %a = placeholder : f32[4, 8]\n  %b = aten.t.default(%a) : f32[8, 4]{1, 8}\n") == "0 0 0");
  CHECK(cost_of("  %a = placeholder : f32[4, 8]\n"
                "  %b = _c10d_functional.wait_tensor.default(%a) : f32[4, 8]\n") == "0 0 0");
}

TEST_CASE("the message of a collective is its larger side, and it moves no bytes of kernels") {
  CHECK(cost_of("  %a = placeholder : f32[4, 8]\n"
                "  %b = _c10d_functional.all_gather_into_tensor.default(%a, 2, \"ep\") : f32[8, 8]\n") ==
        "0 0 256");
  CHECK(cost_of(
            "  %a = placeholder : f32[8, 8]\n"
            "  %b = _c10d_functional.reduce_scatter_tensor.default(%a, \"sum\", 2, \"ep\") : f32[4, 8]\n") ==
        "0 0 256");
}

TEST_CASE("no cost where an extent has no number or the op table lacks the target") {
  CHECK(cost_of("  %a = placeholder : f32[v, 8]\n  %b = aten.neg.default(%a) : f32[v, 8]\n") == "?");
  CHECK(cost_of("  %a = placeholder : f32[v, 8]\n"
                "  %b = _c10d_functional.all_reduce.default(%a, \"sum\", \"ep\") : f32[v, 8]\n") == "?");
  CHECK(cost_of("  %a = placeholder : f32[4, 8]\n  %b = mine.odd.default(%a) : f32[4, 8]\n") == "?");
}

TEST_CASE("work adds kernels, and counts those without a cost") {
  Work work;
  work.add(Cost{.flops = 3, .bytes = 5});
  work.add(std::nullopt);
  work += work;
  CHECK(work.kernels == 4);
  CHECK(work.flops == 6);
  CHECK(work.bytes == 10);
  CHECK(work.unknown == 2);
}

}  // namespace
}  // namespace epweave
