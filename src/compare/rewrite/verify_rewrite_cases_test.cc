// Small rewrites, right ones and ones that differ from them in one respect.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "compare/rewrite/verify_rewrite.h"
#include "io/file.h"
#include "ir/text/text.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

// The invariants that the second graph breaks, each once, in order.
std::string broken(const std::string& before, const std::string& after) {
  const Graph a =
      parse_text("epweave text 1\nsymbol u range=[4, 8] hint=4 asserts=[Eq(Mod(u, 4), 0)]\n" + before, "a");
  const Graph b = parse_text(
      "epweave text 1\nsymbol u range=[4, 8] hint=4 asserts=[Eq(Mod(u, 4), 0)]\n" + after, "b", a.context);
  std::string names;
  for (const Violation& violation : verify_rewrite(a, b).violations)
    if (names.find(violation.invariant) == names.npos)
      names += (names.empty() ? "" : ", ") + violation.invariant;
  return names;
}

std::string replaced(std::string text, std::string_view old, std::string_view with) {
  const std::size_t at = text.find(old);
  REQUIRE(at != text.npos);
  return text.replace(at, old.size(), with);
}

// Takes a line out and puts it behind another.
std::string moved(std::string text, std::string_view line, std::string_view behind) {
  const auto whole_line = [&](std::string_view word) {
    const std::size_t at = text.find(word);
    REQUIRE(at != text.npos);
    const std::size_t begin = text.rfind('\n', at) + 1;
    return std::pair(begin, text.find('\n', at) + 1);
  };
  const auto [begin, end] = whole_line(line);
  const std::string taken = text.substr(begin, end - begin);
  text.erase(begin, end - begin);
  return text.insert(whole_line(behind).second, taken);
}

const std::string kSplitX = R"text(
  %n = aten.sym_size.int(%x, 0) : SymInt(u) from(chunk size %x)
  %h = operator.floordiv(%n, 2) : SymInt((u//2)) from(chunk size %x)
  %x_s = aten.split_with_sizes.default(%x, [%h, %h], 0) : [f32[(u//2), 3], f32[(u//2), 3]+"3*((u//2))"] from(chunk split %x)
  %x_0 = operator.getitem(%x_s, 0) : f32[(u//2), 3] from(chunk split %x 0/2)
  %x_1 = operator.getitem(%x_s, 1) : f32[(u//2), 3]+"3*((u//2))" from(chunk split %x 1/2)
)text";

// ---------------------------------------------------------------------------------------------- no
// provenance

TEST_CASE("a graph without provenance is verified by its nodes' names") {
  const std::string graph = R"text(
graph
  %x = placeholder : f32[4, 3]
  %unused = aten.neg.default(%x) : f32[4, 3]
  %y = aten.neg.default(%x) : f32[4, 3]
  %z = aten.mul.Tensor(%y, %x) : f32[4, 3]
  %r = aten.relu.default(%x) : f32[4, 3]
  output([%z, %r])
)text";
  CHECK(broken(graph, graph).empty());
  CHECK(broken(graph, moved(graph, "%r =", "%unused =")).empty());
  CHECK(broken(graph, replaced(graph, "  %unused = aten.neg.default(%x) : f32[4, 3]\n", "")).empty());
  CHECK(broken(graph, replaced(graph, "%z = aten.mul", "%z = aten.div")) == "rewrite-target");
  CHECK(broken(graph, replaced(graph, "(%y, %x)", "(%unused, %x)")) == "rewrite-argument");
  CHECK(broken(graph, replaced(graph, "[%z, %r]", "[%z]")) == "rewrite-inputs, rewrite-argument");
  CHECK(broken(graph, replaced(graph, "%unused", "%other")) == "rewrite-derived");
}

// ----------------------------------------------------------------------------------------------
// storage

const std::string kWrittenInPlace = R"text(
graph
  %x = placeholder : f32[u, 3]
  %v = aten.neg.default(%x) : f32[u, 3]
  %w = aten.add_.Tensor(%v, %x) : f32[u, 3]
  %y = aten.relu.default(%w) : f32[u, 3]
  %z = aten.mul_.Tensor(%w, %x) : f32[u, 3]
  output([%y, %z])
)text";

const std::string kWrittenInParts = R"text(
origins %x = x, %v = aten.neg.default, %w = aten.add_.Tensor, %y = aten.relu.default, %z = aten.mul_.Tensor, %output = output
graph
  %x = placeholder : f32[u, 3])text" +
                                    kSplitX +
                                    R"text(
  %v_0 = aten.neg.default(%x_0) : f32[(u//2), 3] from(chunk body %v 0/2)
  %v_1 = aten.neg.default(%x_1) : f32[(u//2), 3] from(chunk body %v 1/2)
  %w_0 = aten.add_.Tensor(%v_0, %x_0) : f32[(u//2), 3] from(chunk body %w 0/2)
  %w_1 = aten.add_.Tensor(%v_1, %x_1) : f32[(u//2), 3] from(chunk body %w 1/2)
  %w_j = aten.cat.default([%w_0, %w_1], 0) : f32[u, 3] from(chunk materialize %w)
  %y = aten.relu.default(%w_j) : f32[u, 3] from(chunk kept %y)
  %z_0 = aten.mul_.Tensor(%w_0, %x_0) : f32[(u//2), 3] from(chunk body %z 0/2)
  %z_1 = aten.mul_.Tensor(%w_1, %x_1) : f32[(u//2), 3] from(chunk body %z 1/2)
  %z_j = aten.cat.default([%z_0, %z_1], 0) : f32[u, 3] from(chunk materialize %z)
  output([%y, %z_j]) from(chunk kept %output)
)text";

TEST_CASE("a value written in place, joined from its parts and read again") {
  CHECK(broken(kWrittenInPlace, kWrittenInParts) == "");
}

TEST_CASE("a join holds its parts as they are when it is made") {
  // What is read behind the join may come much later.
  CHECK(broken(kWrittenInPlace, moved(kWrittenInParts, "  %y = ", "  %z_j = ")) == "");
  // The join behind a later write to its parts.
  const std::string late = moved(moved(kWrittenInParts, "  %w_j = ", "  %z_1 = "), "  %y = ", "  %w_j = ");
  CHECK(broken(kWrittenInPlace, late) == "rewrite-effects");
  // Behind the write to one part, before that to the other.
  const std::string torn = moved(moved(kWrittenInParts, "  %w_j = ", "  %z_0 = "), "  %y = ", "  %w_j = ");
  CHECK(broken(kWrittenInPlace, torn) == "rewrite-effects");
}

TEST_CASE("what the step returns is a join made behind the last write") {
  const std::string early = replaced(kWrittenInParts, "output([%y, %z_j])", "output([%y, %w_j])");
  CHECK(broken(kWrittenInPlace, early) == "rewrite-argument, rewrite-effects");
}

// ----------------------------------------------------------------------------------------------
// rows, numbers

std::string along(std::string_view call, std::string_view type) {
  return fmt::format("\ngraph\n  %x = placeholder : f32[u, 3]\n  %y = {} : {}\n  output([%y])\n",
                     fmt::format(fmt::runtime(call), ""), fmt::format(fmt::runtime(type), "u"));
}
// "{}" in the call is "_0" and "_1", in the type half of the rows.
std::string along_in_parts(std::string_view target, std::string_view call, std::string_view type) {
  std::string text =
      fmt::format("\norigins %x = x, %y = {}, %output = output\ngraph\n  %x = placeholder : f32[u, 3]",
                  target) +
      kSplitX;
  for (int k = 0; k < 2; ++k)
    text += fmt::format("  %y_{} = {} : {} from(chunk body %y {}/2)\n", k,
                        fmt::format(fmt::runtime(call), fmt::format("_{}", k)),
                        fmt::format(fmt::runtime(type), "(u//2)"), k);
  return text + fmt::format(
                    "  %y_j = aten.cat.default([%y_0, %y_1], 0) : {} from(chunk materialize %y)\n"
                    "  output([%y_j]) from(chunk kept %output)\n",
                    fmt::format(fmt::runtime(type), "u"));
}
std::string broken_in_parts(std::string_view target, std::string_view args,
                            std::string_view type = "f32[{}, 3]") {
  const std::string call = fmt::format("{}(%x{{0}}{})", target, args);
  return broken(along(call, type), along_in_parts(target, call, type));
}

TEST_CASE("parts of ops that mix what lies along the divided dimension") {
  CHECK(broken_in_parts("aten._softmax.default", ", 1, False") == "");
  CHECK(broken_in_parts("aten._softmax.default", ", -1, False") == "");
  CHECK(broken_in_parts("aten._softmax.default", ", 0, False") == "rewrite-rows");
  CHECK(broken_in_parts("aten._softmax.default", ", -2, False") == "rewrite-rows");
  CHECK(broken_in_parts("aten.amax.default", ", [1], True", "f32[{}, 1]") == "");
  CHECK(broken_in_parts("aten.mean.dim", ", [-1], True", "f32[{}, 1]") == "");
}

TEST_CASE("each part is multiplied by all of the number of tokens, not by its own") {
  const std::string before =
      "\ngraph\n  %x = placeholder : f32[u, 3]\n  %y = aten.mul.Tensor(%x, sym(u)) : f32[u, 3]\n"
      "  output([%y])\n";
  const auto with = [](std::string_view factor) {
    return along_in_parts("aten.mul.Tensor", fmt::format("aten.mul.Tensor(%x{{}}, {})", factor),
                          "f32[{}, 3]");
  };
  CHECK(broken(before, with("sym(u)")) == "");
  CHECK(broken(before, with("%n")) == "");
  CHECK(broken(before, with("sym((u//2))")) == "rewrite-argument");
  CHECK(broken(before, with("%h")) == "rewrite-argument");
}

TEST_CASE("a part has its share of a number that is a size") {
  const std::string before =
      "\ngraph\n  %x = placeholder : f32[u, 3]\n  %y = aten.reshape.default(%x, [sym(u), 3, 1]) : f32[u, 3, "
      "1]\n"
      "  output([%y])\n";
  const auto with = [](std::string_view rows) {
    return along_in_parts("aten.reshape.default",
                          fmt::format("aten.reshape.default(%x{{}}, [{}, 3, 1])", rows), "f32[{}, 3, 1]");
  };
  CHECK(broken(before, with("sym((u//2))")) == "");
  CHECK(broken(before, with("%h")) == "");
  CHECK(broken(before, with("sym((u//4))")) == "rewrite-argument");
}

// ----------------------------------------------------------------------------------------------
// symbols

TEST_CASE("symbols that stand for the numbers of the first graph") {
  const std::string plain =
      "\ngraph\n  %x = placeholder : f32[4, 3]\n  %y = aten.reshape.default(%x, [4, 3, 1]) : "
      "f32[4, 3, 1]\n  output([%y])\n";
  const std::string symbolic =
      "\norigins %x = x, %y = aten.reshape.default, %output = output\ngraph\n  %x = placeholder : f32[u, 3]\n"
      "  %n = aten.sym_size.int(%x, 0) : SymInt(u) from(symbolize size %x)\n"
      "  %y = aten.reshape.default(%x, [%n, 3, 1]) : f32[u, 3, 1] from(symbolize kept %y)\n"
      "  output([%y]) from(symbolize kept %output)\n";
  CHECK(broken(plain, symbolic) == "");
  CHECK(broken(plain, replaced(symbolic, ": f32[u, 3, 1]", ": f32[2*u, 3, 1]")) == "rewrite-type");
  const std::string doubled = replaced(symbolic, "  %y",
                                       "  %m = operator.mul(%n, 2) : SymInt(2*u) from(symbolize "
                                       "size %x)\n  %y");
  CHECK(broken(plain, doubled) == "");
  CHECK(broken(plain, replaced(doubled, "[%n, 3", "[%m, 3")) == "rewrite-argument");
}

TEST_CASE("an input on another device") {
  const std::string before = "\ngraph\n  %x = placeholder : f32[u]@cpu\n  output([%x])\n";
  const std::string after =
      "\norigins %x = x, %output = output\ngraph\n  %x = placeholder : f32[u]@cpu\n"
      "  output([%x]) from(chunk kept %output)\n";
  CHECK(broken(before, after) == "");
  CHECK(broken(before, replaced(after, "@cpu", "@cuda:0")) == "rewrite-type");
}

TEST_CASE("an input that lies in memory in another way") {
  const std::string before = "\ngraph\n  %x = placeholder : f32[u, 4]\n  output([%x])\n";
  const std::string after =
      "\norigins %x = x, %output = output\ngraph\n  %x = placeholder : f32[u, 4]\n"
      "  output([%x]) from(chunk kept %output)\n";
  CHECK(broken(before, after) == "");
  CHECK(broken(before, replaced(after, "f32[u, 4]", "f32[u, 4]{1, u}")) == "rewrite-type");
}

TEST_CASE("what a rewrite says of a symbol that it did not make") {
  const Graph a = parse_text(
      "epweave text 1\nsymbol u range=[2, 8] asserts=[u <= 8]\n\ngraph\n"
      "  %x = placeholder : f32[u, 3]\n  output([%x])\n",
      "a");
  const auto with = [&](std::string_view facts) {
    const Graph b =
        parse_text(fmt::format("epweave text 1\norigins %x = x, %output = output\nsymbol u range=[2, 8] {}\n"
                               "\ngraph\n  %x = placeholder : f32[u, 3]\n"
                               "  output([%x]) from(chunk kept %output)\n",
                               facts),
                   "b", a.context);
    return verify_rewrite(a, b).violations.size();
  };
  CHECK(with("asserts=[u <= 8]") == 0);
  CHECK(with("asserts=[u <= 8] assume=[Eq(Mod(u, 2), 0)]") == 0);
  CHECK(with("asserts=[u <= 8, Eq(u, 4)]") == 1);
  CHECK(with("asserts=[u <= 8] replaced_by=4") == 1);
}

// ----------------------------------------------------------------------------------------------
// symbolize

TEST_CASE("graphs with plain sizes are proved through symbolize, chunk and concretize") {
  const Graph a =
      read_graph(fmt::format("{}/testdata/graphs/dsv3_debug_ep2_static.1b_remat.epw.gz", EPWEAVE_SOURCE_DIR));
  const std::string pipeline =
      GENERATE("symbolize", "symbolize,chunk{parts=2}", "symbolize,chunk{parts=3},overlap-ep",
               "symbolize,chunk{dim=seq,parts=4},concretize", "symbolize,concretize");
  const Graph b = run_pipeline(a, parse_pipeline(pipeline), {.verify = VerifyPolicy::kOff});
  INFO(pipeline);
  const RewriteReport report = verify_rewrite(a, b);
  CHECK(report.violations.empty());
  CHECK((report.divided > 0) == (pipeline.find("chunk") != pipeline.npos));
}

}  // namespace
}  // namespace epweave
