// Which joins of parts are right: each rule of part_facts.h, and what is wrong without each of its side conditions.
#include "compare/rewrite/part_facts.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "compare/rewrite/verify_rewrite.h"
#include "ir/text/text.h"

namespace epweave {
namespace {

// A call of the step and of its parts: "{0}" is "" in the step and "_0", "_1" in the parts; "{1}" is "u" and "(u//2)".
struct Line {
  std::string name, target, args, type;
};

constexpr std::string_view kHead =
    "epweave text 1\ndevice cpu\nsymbol u range=[4, 64] hint=4 asserts=[Eq(Mod(u, 2), 0)]\n";
constexpr std::string_view kInputs =
    "  %x = placeholder : f32[u, 8] role=user which=x\n"
    "  %t = placeholder : i64[u] role=user which=t\n"
    "  %w = placeholder : f32[8, 8] role=parameter fqn=w\n"
    "  %b = placeholder : f32[8] role=parameter fqn=b\n";

std::string print_call(const Line& line, const std::string& part, const std::string& rows) {
  const auto fill = [&](const std::string& text) { return fmt::format(fmt::runtime(text), part, rows); };
  return fmt::format("  %{}{} = {}({}) : {}", line.name, part, line.target, fill(line.args), fill(line.type));
}

std::string step_of(const std::vector<Line>& lines, const std::string& group) {
  std::string text = fmt::format("{}{}\ngraph\n{}", kHead, group, kInputs);
  for (const Line& line : lines) text += print_call(line, "", "u") + "\n";
  return text + fmt::format("  output([%{}])\n", lines.back().name);
}

// The last value is put together by `join`, of "{0}" and "{1}".
std::string parts_of(const std::vector<Line>& lines, const std::string& group, const std::string& join) {
  std::string text = std::string(kHead) + "origins %x = x, %t = t, %w = w, %b = b";
  for (const Line& line : lines) text += fmt::format(", %{} = {}", line.name, line.target);
  text += fmt::format(", %output = output\n{}\ngraph\n{}", group, kInputs);
  text +=
      "  %n = aten.sym_size.int(%x, 0) : SymInt(u) from(chunk size %x)\n"
      "  %h = operator.floordiv(%n, 2) : SymInt((u//2)) from(chunk size %x)\n";
  for (const auto& [name, columns] : {std::pair("x", "f32[(u//2), 8]"), std::pair("t", "i64[(u//2)]")}) {
    const std::string offset = name == std::string("x") ? "+\"8*((u//2))\"" : "+\"(u//2)\"";
    text += fmt::format(
        "  %{0}_s = aten.split_with_sizes.default(%{0}, [%h, %h], 0) : [{1}, {1}{2}] from(chunk split %{0})\n"
        "  %{0}_0 = operator.getitem(%{0}_s, 0) : {1} from(chunk split %{0} 0/2)\n"
        "  %{0}_1 = operator.getitem(%{0}_s, 1) : {1}{2} from(chunk split %{0} 1/2)\n",
        name, columns, offset);
  }
  for (const Line& line : lines)
    for (int k = 0; k < 2; ++k)
      text += print_call(line, fmt::format("_{}", k), "(u//2)") +
              fmt::format(" from(chunk body %{} {}/2)\n", line.name, k);
  const Line& last = lines.back();
  return text + fmt::format(
                    "  %joined = {} : {} from(chunk materialize %{})\n  output([%joined]) from(chunk kept "
                    "%output)\n",
                    fmt::format(fmt::runtime(join), "%" + last.name + "_0", "%" + last.name + "_1"),
                    fmt::format(fmt::runtime(last.type), "", "u"), last.name);
}

constexpr const char* kAdd = "aten.add.Tensor({}, {})";
constexpr const char* kCat = "aten.cat.default([{}, {}], 0)";

std::string broken(const std::vector<Line>& lines, const char* join, const std::string& group = "") {
  const Graph a = parse_text(step_of(lines, group), "a");
  const Graph b = parse_text(parts_of(lines, group, join), "b", a.context);
  std::string names;
  for (const Violation& violation : verify_rewrite(a, b).violations)
    if (names.find(violation.invariant) == names.npos)
      names += (names.empty() ? "" : ", ") + violation.invariant;
  return names;
}

const Line kRows{"m", "aten.mm.default", "%x{0}, %w", "f32[{1}, 8]"};
const Line kSum{"s", "aten.sum.dim_IntList", "%m{0}, [0]", "f32[8]"};
const Line kSame{"o", "aten.new_ones.default", "%m{0}, [8]", "f32[8]"};
const std::string kGroup = "group g ranks=[0, 1] description=g axes=[g]";

Line on_sum(std::string target, std::string more = "") {
  return {"y", std::move(target), "%s{0}" + more, "f32[8]"};
}

TEST_CASE("what sums over rows is a sum of its parts") {
  CHECK(broken({kRows, kSum}, kAdd) == "");
  CHECK(broken({kRows,
                {"r", "aten.t.default", "%x{0}", "f32[8, {1}]{{1, 8}}"},
                {"y", "aten.mm.default", "%r{0}, %m{0}", "f32[8, 8]"}},
               kAdd) == "");
  CHECK(broken({{"y", "aten.histc.default", "%x{0}, 8, 0, 8", "f32[8]"}}, kAdd) == "");
  CHECK(broken({kRows, {"y", "aten.mean.dim", "%m{0}, [0]", "f32[8]"}}, kAdd) != "");
  CHECK(broken({kRows, {"y", "aten.amax.default", "%m{0}, [0]", "f32[8]"}}, kAdd) != "");
}

TEST_CASE("what each part has all of is no summand") {
  CHECK(broken({kRows, kSame}, kAdd) == "rewrite-join");
  CHECK(broken({kRows, {"y", "aten.new_zeros.default", "%m{0}, [8]", "f32[8]"}}, kAdd) == "");
  CHECK(broken({{"y", "aten.relu.default", "%w", "f32[8, 8]"}}, kAdd) == "rewrite-join");
  CHECK(broken({kRows, kSame, {"y", "aten.mul.Tensor", "%o{0}, 2", "f32[8]"}}, kAdd) == "rewrite-join");
}

TEST_CASE("a sum stays one through what is linear in it alone") {
  CHECK(broken({kRows, kSum, on_sum("aten.neg.default")}, kAdd) == "");
  CHECK(broken({kRows, kSum, on_sum("aten.mul.Tensor", ", %b")}, kAdd) == "");
  CHECK(broken({kRows, kSum, on_sum("aten.div.Tensor", ", %b")}, kAdd) == "");
  CHECK(broken({kRows, kSum, on_sum("aten.add.Tensor", ", %s{0}")}, kAdd) == "");
  CHECK(broken({kRows, kSum, on_sum("aten.relu.default")}, kAdd) == "rewrite-join");
  CHECK(broken({kRows, kSum, on_sum("aten.mul.Tensor", ", %s{0}")}, kAdd) == "rewrite-join");
  CHECK(broken({kRows, kSum, on_sum("aten.add.Tensor", ", %b")}, kAdd) == "rewrite-join");
  CHECK(broken({kRows, kSum, on_sum("aten.add.Tensor", ", 1.0")}, kAdd) == "rewrite-join");
  CHECK(broken({kRows, kSum, {"y", "aten.div.Tensor", "%b, %s{0}", "f32[8]"}}, kAdd) == "rewrite-join");
  CHECK(broken({kRows, kSum, {"y", "aten._to_copy.default", "%s{0}, dtype=bf16", "bf16[8]"}}, kAdd) == "");
  CHECK(broken({kRows, kSum, {"y", "aten._to_copy.default", "%s{0}, dtype=i64", "i64[8]"}}, kAdd) ==
        "rewrite-join");
  CHECK(broken({kRows, kSum, {"y", "aten.constant_pad_nd.default", "%s{0}, [0, 1]", "f32[9]"}}, kAdd) == "");
  CHECK(broken({kRows, kSum, {"y", "aten.constant_pad_nd.default", "%s{0}, [0, 1], 1.0", "f32[9]"}}, kAdd) ==
        "rewrite-join");
}

TEST_CASE("a sum across ranks is linear, a maximum is not") {
  const auto reduced = [](std::string_view how) {
    return std::vector<Line>{
        kRows,
        kSum,
        {"r", "_c10d_functional.all_reduce.default", fmt::format("%s{{0}}, \"{}\", \"g\"", how), "f32[8]"},
        {"y", "_c10d_functional.wait_tensor.default", "%r{0}", "f32[8]"}};
  };
  CHECK(broken(reduced("sum"), kAdd, kGroup) == "");
  CHECK(broken(reduced("avg"), kAdd, kGroup) == "");
  CHECK(broken(reduced("max"), kAdd, kGroup) == "rewrite-join");
}

TEST_CASE("rows with a part's own sum, or of its own numbers, are not rows of the whole") {
  CHECK(broken({kRows, {"y", "aten.mul.Tensor", "%m{0}, %b", "f32[{1}, 8]"}}, kCat) == "");
  CHECK(broken({kRows, kSum, {"y", "aten.mul.Tensor", "%m{0}, %s{0}", "f32[{1}, 8]"}}, kCat) ==
        "rewrite-join");
  CHECK(broken({kRows, kSum, {"y", "aten.expand.default", "%s{0}, [sym({1}), 8]", "f32[{1}, 8]{{0, 1}}"}},
               kCat) == "rewrite-join");
  CHECK(broken({{"y", "aten.arange.default", "sym({1})", "i64[{1}]"}}, kCat) == "rewrite-join");
  CHECK(broken({{"a", "aten.arange.default", "sym({1})", "i64[{1}]"},
                {"y", "aten.mul.Tensor", "%a{0}, %t{0}", "i64[{1}]"}},
               kCat) == "rewrite-join");
  CHECK(broken({{"a", "aten.arange.default", "sym({1})", "i64[{1}]"},
                {"y", "aten.index.Tensor", "%w, [%a{0}]", "f32[{1}, 8]"}},
               kCat) != "");
}

TEST_CASE("what is written in place is in the value from then on") {
  const Line zeros{"z", "aten.new_zeros.default", "%m{0}, [8]", "f32[8]"};
  const Line added{"i", "aten.add_.Tensor", "%z{0}, %s{0}", "f32[8]"};
  CHECK(broken({kRows, kSum, zeros, added, {"y", "aten.neg.default", "%z{0}", "f32[8]"}}, kAdd) == "");
  CHECK(broken({kRows,
                kSum,
                zeros,
                {"i", "aten.add_.Tensor", "%z{0}, %b", "f32[8]"},
                {"y", "aten.neg.default", "%z{0}", "f32[8]"}},
               kAdd) == "rewrite-join");
}

}  // namespace
}  // namespace epweave
