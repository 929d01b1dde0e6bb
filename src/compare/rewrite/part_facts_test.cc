// Which joins of parts are right: each rule of part_facts.h, and what is wrong without each of its
// side conditions.
#include "compare/rewrite/part_facts.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "compare/rewrite/verify_rewrite.h"
#include "ir/text/text.h"
#include "testing/call_lines.h"

namespace epweave {
namespace {

using Line = CallLine;

CallSteps steps_with(const std::string& group) {
  return {.head = "epweave text 1\ndevice cpu\nsymbol u range=[4, 64] hint=4 asserts=[Eq(Mod(u, 2), 0)]\n" +
                  group,
          .inputs = {{"x", "f32[{1}, 8]", "8*({1})", " role=user which=x"},
                     {"t", "i64[{1}]", "{1}", " role=user which=t"},
                     {"w", "f32[8, 8]", "", " role=parameter fqn=w"},
                     {"b", "f32[8]", "", " role=parameter fqn=b"}},
          .outputs = ""};
}

constexpr const char* kAdd = "aten.add.Tensor({0}, {1})";
constexpr const char* kCat = "aten.cat.default([{0}, {1}], 0)";

std::string broken(const std::vector<Line>& lines, const char* join, const std::string& group = "") {
  const Graph a = parse_text(steps_with(group).step_of(lines), "a");
  const Graph b = parse_text(steps_with(group).parts_of(lines, join), "b", a.context);
  std::string names;
  for (const Violation& violation : verify_rewrite(a, b).violations)
    if (names.find(violation.invariant) == names.npos)
      names += (names.empty() ? "" : ", ") + violation.invariant;
  return names;
}

const Line kRows{"m", "aten.mm.default", "%x{0}, %w", "f32[{1}, 8]"};
const Line kSum{"s", "aten.sum.dim_IntList", "%m{0}, [0]", "f32[8]"};
const Line kSame{"o", "aten.new_ones.default", "%m{0}, [8]", "f32[8]"};
const std::string kGroup = "group g ranks=[0, 1] description=g axes=[g]\n";

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

TEST_CASE("counts in floating point are cast to integers part by part, while nothing writes to them") {
  const Line counts{"n", "aten.histc.default", "%x{0}, 8, 0, 8", "f32[8]"};
  const Line cast{"y", "aten._to_copy.default", "%n{0}, dtype=i64", "i64[8]"};
  CHECK(broken({counts, cast}, kAdd) == "");
  CHECK(broken({counts, {"y", "aten.cumsum.default", "%n{0}, 0, dtype=i32", "i32[8]"}}, kAdd) == "");
  CHECK(broken({counts, {"y", "aten._to_copy.default", "%n{0}, dtype=i16", "i16[8]"}}, kAdd) != "");
  CHECK(broken({counts,
                {"h", "aten.mul.Tensor", "%n{0}, 0.5", "f32[8]"},
                {"y", cast.target, "%h{0}, dtype=i64", "i64[8]"}},
               kAdd) != "");
  CHECK(broken({counts, {"h", "aten.mul_.Tensor", "%n{0}, 0.5", "f32[8]"}, cast}, kAdd) != "");
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
