// Small graphs and what they were rewritten to, for tests of the check: right ones, and ones with a
// fault in one place.
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <utility>

#include "ir/text/text.h"

namespace epweave::replay {

// A product of tokens and weights, summed over two ranks; the weight's gradient is a sum over the
// tokens.
inline const char* const kWhole = R"(group 7 ranks=[0, 1]
graph
  %x = placeholder : bf16[8, 16]
  %w = placeholder : bf16[16, 16]
  %h = aten.mm.default(%x, %w) : bf16[8, 16] @layers.0.mlp
  %g = _c10d_functional.all_reduce.default(%h, "sum", "7") : bf16[8, 16]
  %r = _c10d_functional.wait_tensor.default(%g) : bf16[8, 16]
  %y = aten.mul.Tensor(%r, %x) : bf16[8, 16]
  %t = aten.t.default(%x) : bf16[16, 8]{1, 16}
  %dw = aten.mm.default(%t, %y) : bf16[16, 16] @layers.0.mlp
  output([%y, %dw])
)";

// The tokens in two parts.
inline const char* const kParts = R"(group 7 ranks=[0, 1]
origins %x = x, %w = w, %h = aten.mm.default, %g = _c10d_functional.all_reduce.default, %r = _c10d_functional.wait_tensor.default, %y = aten.mul.Tensor, %t = aten.t.default, %dw = aten.mm.default
graph
  %x = placeholder : bf16[8, 16] from(chunk kept %x)
  %w = placeholder : bf16[16, 16] from(chunk kept %w)
  %x0 = aten.slice.Tensor(%x, 0, 0, 4) : bf16[4, 16] from(chunk split %x 0/2)
  %x1 = aten.slice.Tensor(%x, 0, 4, 8) : bf16[4, 16]+64 from(chunk split %x 1/2)
  %h0 = aten.mm.default(%x0, %w) : bf16[4, 16] @layers.0.mlp from(chunk body %h 0/2)
  %h1 = aten.mm.default(%x1, %w) : bf16[4, 16] @layers.0.mlp from(chunk body %h 1/2)
  %g0 = _c10d_functional.all_reduce.default(%h0, "sum", "7") : bf16[4, 16] from(chunk body %g 0/2)
  %g1 = _c10d_functional.all_reduce.default(%h1, "sum", "7") : bf16[4, 16] from(chunk body %g 1/2)
  %r0 = _c10d_functional.wait_tensor.default(%g0) : bf16[4, 16] from(chunk body %r 0/2)
  %r1 = _c10d_functional.wait_tensor.default(%g1) : bf16[4, 16] from(chunk body %r 1/2)
  %y0 = aten.mul.Tensor(%r0, %x0) : bf16[4, 16] from(chunk body %y 0/2)
  %y1 = aten.mul.Tensor(%r1, %x1) : bf16[4, 16] from(chunk body %y 1/2)
  %y = aten.cat.default([%y0, %y1]) : bf16[8, 16] from(chunk materialize %y)
  %t0 = aten.t.default(%x0) : bf16[16, 4]{1, 16} from(chunk body %t 0/2)
  %t1 = aten.t.default(%x1) : bf16[16, 4]{1, 16}+64 from(chunk body %t 1/2)
  %dw0 = aten.mm.default(%t0, %y0) : bf16[16, 16] @layers.0.mlp from(chunk body %dw 0/2)
  %dw1 = aten.mm.default(%t1, %y1) : bf16[16, 16] @layers.0.mlp from(chunk body %dw 1/2)
  %dw = aten.add.Tensor(%dw0, %dw1) : bf16[16, 16] from(chunk materialize %dw)
  output([%y, %dw])
)";

inline Graph parse(const std::string& text) {
  return parse_text("epweave text 1\n" + text, "test");
}

inline std::string replace(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  INFO(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

struct GraphFault {
  const char* kind;
  const char* from;
  const char* to;
  const char* found_at;  // the first node that differs, "" for an output
};

inline constexpr GraphFault kFaults[] = {
    {"part takes another part's value", "%y1 = aten.mul.Tensor(%r1, %x1)", "%y1 = aten.mul.Tensor(%r0, %x1)",
     "y1"},
    {"stale value", "%y1 = aten.mul.Tensor(%r1, %x1)", "%y1 = aten.mul.Tensor(%h1, %x1)", "y1"},
    {"cat in another order", "[%y0, %y1]", "[%y1, %y0]", "y"},
    {"part twice in a cat", "[%y0, %y1]", "[%y0, %y0]", "y"},
    {"part twice in a sum", "(%dw0, %dw1)", "(%dw1, %dw1)", "dw"},
    {"part missing in a sum", "aten.add.Tensor(%dw0, %dw1)", "aten.add.Tensor(%dw0, 0)", "dw"},
    {"difference instead of a sum", "%dw = aten.add.Tensor", "%dw = aten.sub.Tensor", "dw"},
    {"another op", "%y1 = aten.mul.Tensor", "%y1 = aten.add.Tensor", "y"},
    {"another operand of a sum's part", "(%t1, %y1)", "(%t1, %r1)", "dw0"},
    {"part of a sum with another part's factor", "(%t1, %y1)", "(%t0, %y1)", "dw0"},
    {"other rows of a split", "(%x, 0, 4, 8) : bf16[4, 16]+64", "(%x, 0, 3, 7) : bf16[4, 16]+48", "x1"},
    {"average instead of a sum of ranks", "all_reduce.default(%h1, \"sum\"",
     "all_reduce.default(%h1, \"avg\"", "r1"},
    {"collective of another part", "all_reduce.default(%h1,", "all_reduce.default(%h0,", "r1"},
    {"number changed", "%y1 = aten.mul.Tensor(%r1, %x1)", "%y1 = aten.mul.Tensor(%r1, 2)", "y1"},
    {"outputs swapped", "output([%y, %dw])", "output([%dw, %y])", ""},
};

// Rows of the weight's gradient, a regrouped sum, taken by numbers: in the parts downwards.
inline std::string taking_rows(const std::string& graph, const std::string& lines,
                               const std::string& origins) {
  std::string text = graph;
  if (!origins.empty())
    text = replace(text, "%dw = aten.mm.default\n", "%dw = aten.mm.default, " + origins + "\n");
  return replace(text, "  output(", lines + "  output(");
}

inline std::string whole_taking_rows() {
  return taking_rows(kWhole,
                     "  %i = aten.arange.start(0, 16) : i64[16]\n"
                     "  %p = aten.index.Tensor(%dw, [%i]) : bf16[16, 16] @layers.0.mlp\n",
                     "");
}
// The second part's rows: "7, -1" are those that the first leaves.
inline std::string parts_taking_rows(const std::string& second) {
  return taking_rows(
      kParts,
      "  %i0 = aten.arange.start_step(15, 7, -1) : i64[8] from(chunk body %i 0/2)\n"
      "  %i1 = aten.arange.start_step(" +
          second +
          ", -1) : i64[8] from(chunk body %i 1/2)\n"
          "  %p0 = aten.index.Tensor(%dw, [%i0]) : bf16[8, 16] @layers.0.mlp from(chunk body %p 0/2)\n"
          "  %p1 = aten.index.Tensor(%dw, [%i1]) : bf16[8, 16] @layers.0.mlp from(chunk body %p 1/2)\n",
      "%i = aten.arange.start, %p = aten.index.Tensor");
}

// --- errors put into a regrouped gradient ---

inline const char* const kTokens = R"(graph
  %x = placeholder : bf16[64, 32]
  %y = placeholder : bf16[64, 32]
  %t = aten.t.default(%x) : bf16[32, 64]{1, 32}
  %dw = aten.mm.default(%t, %y) : bf16[32, 32]
  %g = aten._to_copy.default(%dw, dtype=f32) : f32[32, 32]
  output([%g])
)";

// Where the gradient passes from %dw to %bad.
inline constexpr const char* kGood = "  %bad = aten.clone.default(%dw) : bf16[32, 32] from(chunk added)\n";

// The tokens in two parts.
inline std::string parts_of_tokens() {
  return R"(origins %x = x, %y = y, %t = aten.t.default, %dw = aten.mm.default, %g = aten._to_copy.default
graph
  %x = placeholder : bf16[64, 32] from(chunk kept %x)
  %y = placeholder : bf16[64, 32] from(chunk kept %y)
  %x0 = aten.slice.Tensor(%x, 0, 0, 32) : bf16[32, 32] from(chunk split %x 0/2)
  %x1 = aten.slice.Tensor(%x, 0, 32, 64) : bf16[32, 32]+1024 from(chunk split %x 1/2)
  %y0 = aten.slice.Tensor(%y, 0, 0, 32) : bf16[32, 32] from(chunk split %y 0/2)
  %y1 = aten.slice.Tensor(%y, 0, 32, 64) : bf16[32, 32]+1024 from(chunk split %y 1/2)
  %t0 = aten.t.default(%x0) : bf16[32, 32]{1, 32} from(chunk body %t 0/2)
  %t1 = aten.t.default(%x1) : bf16[32, 32]{1, 32}+1024 from(chunk body %t 1/2)
  %dw0 = aten.mm.default(%t0, %y0) : bf16[32, 32] from(chunk body %dw 0/2)
  %dw1 = aten.mm.default(%t1, %y1) : bf16[32, 32] from(chunk body %dw 1/2)
  %dw = aten.add.Tensor(%dw0, %dw1) : bf16[32, 32] from(chunk materialize %dw)
)" + std::string(kGood) +
         R"(  %g = aten._to_copy.default(%bad, dtype=f32) : f32[32, 32] from(chunk kept %g)
  output([%g])
)";
}

// The same behind attention's backward and a rotation of pairs: each query adds to the gradients of
// all keys.
inline const char* const kQueries = R"(graph
  %q = placeholder : bf16[1, 1, 64, 32]
  %k = placeholder : bf16[1, 1, 32, 32]
  %v = placeholder : bf16[1, 1, 32, 32]
  %do = placeholder : bf16[1, 1, 64, 32]
  %r = placeholder : f32[32, 16, 2]
  %f = aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %k, %v) : (bf16[1, 1, 64, 32], f32[1, 1, 64])
  %o = operator.getitem(%f, 0) : bf16[1, 1, 64, 32]
  %l = operator.getitem(%f, 1) : f32[1, 1, 64]
  %b = aten._scaled_dot_product_flash_attention_for_cpu_backward.default(%do, %q, %k, %v, %o, %l, 0.0, False) : (bf16[1, 1, 64, 32], bf16[1, 1, 32, 32], bf16[1, 1, 32, 32])
  %dk = operator.getitem(%b, 1) : bf16[1, 1, 32, 32]
  %single = aten._to_copy.default(%dk, dtype=f32) : f32[1, 1, 32, 32]
  %pairs = aten.view.default(%single, [32, 16, 2]) : f32[32, 16, 2]
  %c = aten.view_as_complex.default(%pairs) : c64[32, 16]
  %turn = aten.view_as_complex.default(%r) : c64[32, 16]
  %back = aten._conj.default(%turn) : c64[32, 16]
  %turned = aten.mul.Tensor(%c, %back) : c64[32, 16]
  %real = aten.view_as_real.default(%turned) : f32[32, 16, 2]
  %flat = aten.view.default(%real, [32, 32]) : f32[32, 32]
  %dw = aten._to_copy.default(%flat, dtype=bf16) : bf16[32, 32]
  %g = aten._to_copy.default(%dw, dtype=f32) : f32[32, 32]
  output([%g])
)";

// The queries in two parts.
inline std::string parts_of_queries() {
  std::string text, origins;
  std::istringstream lines(kQueries);
  for (std::string line; std::getline(lines, line);) {
    const bool is_node = line.starts_with("  %");
    const std::string name = is_node ? line.substr(2, line.find(' ', 2) - 2) : "";
    if (is_node) {
      const std::size_t op = line.find("= ") + 2;
      const std::string target = line.substr(op, line.find_first_of(" (", op) - op);
      origins += fmt::format("{}{} = {}", origins.empty() ? "origins " : ", ", name,
                             target == "placeholder" ? name.substr(1) : target);
    }
    if (name == "%b") {
      for (int part = 0; part < 2; ++part) {
        const auto cut = [&](const char* of, const char* sizes, const char* strides, int step) {
          text +=
              fmt::format("  %{0}{1} = aten.slice.Tensor(%{0}, 2, {2}, {3}) : {4}{5}{6}", of, part, part * 32,
                          part * 32 + 32, sizes, strides, part == 0 ? "" : fmt::format("+{}", step));
          text += fmt::format(" from(chunk split %{} {}/2)\n", of, part);
        };
        for (const char* of : {"q", "o", "do"}) cut(of, "bf16[1, 1, 32, 32]", "{2048, 2048, 32, 1}", 1024);
        cut("l", "f32[1, 1, 32]", "{64, 64, 1}", 32);
        text += fmt::format(
            "  %b{0} = aten._scaled_dot_product_flash_attention_for_cpu_backward.default(%do{0}, %q{0}, %k, "
            "%v, "
            "%o{0}, %l{0}, 0.0, False) : (bf16[1, 1, 32, 32], bf16[1, 1, 32, 32], bf16[1, 1, 32, 32]) "
            "from(chunk body %b {0}/2)\n"
            "  %dk{0} = operator.getitem(%b{0}, 1) : bf16[1, 1, 32, 32] from(chunk body %dk {0}/2)\n",
            part);
      }
    } else if (name == "%dk") {
      text += "  %dk = aten.add.Tensor(%dk0, %dk1) : bf16[1, 1, 32, 32] from(chunk materialize %dk)\n";
    } else if (name == "%g") {
      text += kGood;
      text += "  %g = aten._to_copy.default(%bad, dtype=f32) : f32[32, 32] from(chunk kept %g)\n";
    } else {
      text += line + (is_node ? " from(chunk kept " + name + ")" : "") + "\n";
    }
  }
  return origins + "\n" + text;
}

enum class Where { kElement, kRow, kTensor };
struct ErrorPosition {
  std::int64_t row = 0, column = 0;
};

// Multiplies by 1 + size in float32, and rounds to bfloat16 again: most elements keep their bits.
inline std::string error_of(double size, Where where, const ErrorPosition& at) {
  const auto [row, column] = at;
  std::string text =
      "  %ones = aten.full.default([32, 32], 1.0, dtype=f32) : f32[32, 32] from(chunk added)\n"
      "  %row = aten.select.int(%ones, 0, " +
      std::to_string(row) + ") : f32[32]+" + std::to_string(32 * row) + " from(chunk added)\n" +
      "  %element = aten.select.int(%row, 0, " + std::to_string(column) + ") : f32[]{}+" +
      std::to_string(32 * row + column) + " from(chunk added)\n";
  const auto [view, sizes] = where == Where::kElement ? std::pair{"element", "f32[]{}"}
                             : where == Where::kRow   ? std::pair{"row", "f32[32]"}
                                                      : std::pair{"ones", "f32[32, 32]"};
  const std::int64_t offset = where == Where::kElement ? 32 * row + column
                              : where == Where::kRow   ? 32 * row
                                                       : 0;
  text += fmt::format("  %factor = aten.fill_.Scalar(%{}, {}) : {}{} from(chunk added)\n", view, 1 + size,
                      sizes, offset == 0 ? "" : fmt::format("+{}", offset));
  return text +
         "  %wide = aten.mul.Tensor(%dw, %ones) : f32[32, 32] from(chunk added)\n"
         "  %bad = aten._to_copy.default(%wide, dtype=bf16) : bf16[32, 32] from(chunk added)\n";
}

}  // namespace epweave::replay
