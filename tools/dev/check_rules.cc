// The rules by which `verify A B` accepts, by execution: for each side condition
// (compare/rewrite/conditions.h) a wrong rewrite that is refused, that is accepted once the
// condition is dropped, and that computes something else; and right rewrites beside it, which are
// accepted and compute the same. Prints a line for each; ctest compares them with
// testdata/rules.txt. Exit code 1 where a condition lets no wrong rewrite pass, or a right one is
// refused or is wrong.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "compare/rewrite/conditions.h"
#include "ir/text/text.h"
#include "mutant_judge.h"
#include "replay/kernels/host/kernels.h"
#include "testing/call_lines.h"

namespace epweave {
namespace {

using Line = CallLine;
using Lines = CallLines;

struct Case {
  Condition condition;  // kNone: a right rewrite
  std::string name;
  Lines lines;
  std::string join;  // of "{0}" and "{1}", the parts of the last line
};

const CallSteps kSteps{
    .head =
        "epweave text 1\ndevice cpu\nsymbol u range=[4, 64] hint=8 asserts=[Eq(Mod(u, 4), 0)]\n"
        "info world_size = 2\ninfo rank = 0\ngroup g ranks=[0, 1] description=g axes=[g]\n",
    .inputs = {{"x", "f32[{1}, 8]", "8*({1})",
                " role=user which=x bind(u, {\"kind\": \"CallMethodKey\", \"name\": \"size\"}, "
                "{\"kind\": \"SequenceKey\", \"idx\": 0})"},
               {"tokens", "i64[{1}]", "{1}", " role=user which=tokens"},
               {"w", "f32[8, 8]", "", " role=parameter fqn=tok_embeddings.weight"},
               {"b", "f32[8]", "", " role=parameter fqn=b"}},
    .outputs = "output other\n"};
constexpr const char* kAdd = "aten.add.Tensor({0}, {1})";
constexpr const char* kCat = "aten.cat.default([{0}, {1}], 0)";

// -------------------------------------------------------------------------------------------------
// the cases

const Line kRows{"m", "aten.mm.default", "%x{0}, %w", "f32[{1}, 8]"};
const Line kSum{"s", "aten.sum.dim_IntList", "%m{0}, [0]", "f32[8]"};
const Line kNumbers{"a", "aten.arange.default", "sym({1})", "i64[{1}]"};
const Line kSort{"o", "aten.sort.stable", "%tokens{0}, stable=True", "(i64[{1}], i64[{1}])"};
const Line kOrder{"i", "operator.getitem", "%o{0}, 1", "i64[{1}]"};
const Line kSorted{"y", "aten.index.Tensor", "%x{0}, [%i{0}]", "f32[{1}, 8]"};
const Line kZeros{"z", "aten.new_zeros.default", "%m{0}, [8]", "f32[8]"};

Lines on_rows(std::string target, std::string args, std::string type = "f32[{1}, 8]") {
  return {kRows, {"y", std::move(target), std::move(args), std::move(type)}};
}
Lines on_sum(std::string target, std::string args, std::string type = "f32[8]") {
  return {kRows, kSum, {"y", std::move(target), std::move(args), std::move(type)}};
}
Lines on_sorted(Lines more) {
  more.insert(more.begin(), {kSort, kOrder, kSorted});
  return more;
}
Lines reduced(std::string_view how) {
  return {kRows,
          kSum,
          {"r", "_c10d_functional.all_reduce.default", fmt::format("%s{{0}}, \"{}\", \"g\"", how), "f32[8]"},
          {"y", "_c10d_functional.wait_tensor.default", "%r{0}", "f32[8]"}};
}

Lines written(std::string_view accumulate) {
  return {kRows,
          {"z", "aten.new_zeros.default", "%m{0}, [8, 8]", "f32[8, 8]"},
          {"r", "aten.remainder.Scalar", "%tokens{0}, 2", "i64[{1}]"},
          {"y", "aten.index_put.default", fmt::format("%z{{0}}, [%r{{0}}], %m{{0}}, {}", accumulate),
           "f32[8, 8]"}};
}
// Rows %y, each times its token's, added up.
Lines weighed(Lines lines, const std::string& columns = "8") {
  lines.push_back({"p", "aten.mul.Tensor", columns == "8" ? "%y{0}, %x{0}" : "%y{0}, %y{0}",
                   fmt::format("f32[{{1}}, {}]", columns)});
  lines.push_back({"q", "aten.sum.dim_IntList", "%p{0}, [0]", fmt::format("f32[{}]", columns)});
  return lines;
}
Lines counted(Lines lines) {
  lines.push_back({"q", "aten.sum.dim_IntList", "%y{0}, [0]", "i64[]"});
  return lines;
}

// %{name}, of what all ranks send of %{source}.
Lines exchanged(const std::string& name, const std::string& source) {
  return {{name + "r", "_c10d_functional.all_to_all_single.default",
           "%" + source + "{0}, [sym(({1})//2), sym(({1})//2)], [sym(({1})//2), sym(({1})//2)], \"g\"",
           "f32[{1}, 8]"},
          {name, "_c10d_functional.wait_tensor.default", "%" + name + "r{0}", "f32[{1}, 8]"}};
}
Lines operator+(Lines first, const Lines& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<Case> list_cases() {
  using enum Condition;
  return {
      {kNone, "rows", {kRows}, kCat},
      {kPartsInOrder, "the second part first", {kRows}, "aten.cat.default([{1}, {0}], 0)"},
      {kNone, "a sum over rows", {kRows, kSum}, kAdd},
      {kEachPartOnce, "the first part twice", {kRows, kSum}, "aten.add.Tensor({0}, {0})"},
      {kAddsSummands, "what each part has all of", on_rows("aten.new_ones.default", "%m{0}, [8]", "f32[8]"),
       kAdd},
      {kJoinsRows, "rows with a sum of their part", on_sum("aten.mul.Tensor", "%m{0}, %s{0}", "f32[{1}, 8]"),
       kCat},
      {kJoinsKnownOrders, "sorted rows", on_sorted({}), kCat},
      {kNone, "softmax of a row", on_rows("aten._softmax.default", "%m{0}, 1, False"), kCat},
      {kMixesNoRows, "cumsum over rows", on_rows("aten.cumsum.default", "%m{0}, 0"), kCat},
      {kPairsRows,
       "columns of all rows picked for a part's",
       {{"i", "aten.argsort.default", "%x{0}, 1", "i64[{1}, 8]"},
        {"y", "aten.gather.default", "%x, 1, %i{0}", "f32[{1}, 8]"}},
       kCat},
      {kNone, "rows added where they belong", written("True"), kAdd},
      {kReducesBySum, "rows written over each other", written("False"), kAdd},
      {kLinear, "exp of a sum", on_sum("aten.exp.default", "%s{0}"), kAdd},
      {kNone, "a sum divided", on_sum("aten.div.Tensor", "%s{0}, %b"), kAdd},
      {kFirstIsShare, "divided by a sum", on_sum("aten.div.Tensor", "%b, %s{0}"), kAdd},
      {kNone, "a sum times a weight", on_sum("aten.mul.Tensor", "%s{0}, %b"), kAdd},
      {kOneIsShare, "a sum times itself", on_sum("aten.mul.Tensor", "%s{0}, %s{0}"), kAdd},
      {kNone, "a sum and itself", on_sum("aten.add.Tensor", "%s{0}, %s{0}"), kAdd},
      {kAllAreSummands, "a sum and a bias", on_sum("aten.add.Tensor", "%s{0}, %b"), kAdd},
      {kAddsNoNumber, "a sum and 1", on_sum("aten.add.Tensor", "%s{0}, 1.0"), kAdd},
      {kScalesByFinite, "a sum divided by 0", on_sum("aten.div.Tensor", "%s{0}, 0.0"), kAdd},
      {kConvertsSums, "a sum as integers", on_sum("aten._to_copy.default", "%s{0}, dtype=i64", "i64[8]"),
       kAdd},
      {kNone, "a sum between zeros", on_sum("aten.constant_pad_nd.default", "%s{0}, [0, 1]", "f32[9]"), kAdd},
      {kPadsZeros, "a sum between ones",
       on_sum("aten.constant_pad_nd.default", "%s{0}, [0, 1], 1.0", "f32[9]"), kAdd},
      {kNone, "a sum across ranks", reduced("sum"), kAdd},
      {kReducesRanksBySum, "a maximum across ranks", reduced("max"), kAdd},
      {kRowsTakeNoShare, "rows times a sum", on_sum("aten.mul.Tensor", "%m{0}, %s{0}", "f32[{1}, 8]"), kCat},
      {kRowsTakeNoNumbers, "data times numbers",
       counted({kNumbers, {"y", "aten.mul.Tensor", "%a{0}, %tokens{0}", "i64[{1}]"}}), kAdd},
      {kDividesOneDimension,
       "rows beside all rows",
       {{"m", "aten.neg.default", "%x{0}", "f32[{1}, 8]"},
        {"t", "aten.permute.default", "%m{0}, [1, 0]", "f32[8, {1}]{{1, 8}}"},
        {"y", "aten.mm.default", "%m{0}, %t{0}", "f32[{1}, {1}]"},
        {"r", "aten.relu.default", "%y{0}", "f32[{1}, {1}]"},
        {"q", "aten.sum.default", "%r{0}", "f32[]"}},
       kAdd},
      {kGroupsCountRows,
       "groups of the whole",
       {{"v", "aten.view.default", "%w, [1, 8, 8]", "f32[1, 8, 8]{{64, 8, 1}}"},
        {"o", "aten.new_full.default", "%x{0}, [1], 2, dtype=i32", "i32[1]"},
        {"y", "aten._grouped_mm.default", "%x{0}, %v{0}, %o{0}", "f32[{1}, 8]"},
        {"q", "aten.sum.dim_IntList", "%y{0}, [0]", "f32[8]"}},
       kAdd},
      {kNone, "rows picked by their numbers",
       weighed({kNumbers, {"y", "aten.index.Tensor", "%x{0}, [%a{0}]", "f32[{1}, 8]"}}), kAdd},
      {kNumbersPickParts, "a table picked by numbers of a part",
       weighed({kNumbers, {"y", "aten.index.Tensor", "%w, [%a{0}]", "f32[{1}, 8]"}}), kAdd},
      {kNumbersCountRows, "the first half of twice as many rows",
       weighed({{"r", "aten.repeat.default", "%x{0}, [1, 1]", "f32[{1}, 8]"},
                {"v", "aten.reshape.default", "%r{0}, [-1, 4]", "f32[\"2*({1})\", 4]"},
                kNumbers,
                {"y", "aten.index.Tensor", "%v{0}, [%a{0}]", "f32[{1}, 4]"}},
               "4"),
       kAdd},
      {kPlacesPickOwnRows, "places in the order of the tokens",
       weighed({kNumbers,
                {"v", "aten.sub.Tensor", "%a{0}, %a{0}", "i64[{1}]"},
                {"y", "aten.index.Tensor", "%x{0}, [%v{0}]", "f32[{1}, 8]"}}),
       kAdd},
      {kPositionsMeetNoRows,
       "columns that the rows of a part name",
       {{"r", "aten.remainder.Scalar", "%tokens{0}, 8", "i64[{1}]"},
        {"y", "aten.index_fill.int_Scalar", "%x{0}, 1, %r{0}, 0.0", "f32[{1}, 8]"}},
       kCat},
      {kDataPickNoParts, "rows of a part picked by data",
       weighed({{"r", "aten.remainder.Scalar", "%tokens{0}, 2", "i64[{1}]"},
                {"y", "aten.index.Tensor", "%x{0}, [%r{0}]", "f32[{1}, 8]"}}),
       kAdd},
      {kNone, "which of an entry",
       counted({kNumbers, {"y", "aten.remainder.Scalar", "%a{0}, 1", "i64[{1}]"}}), kAdd},
      {kEntriesDivideRows, "which of three entries",
       counted({kNumbers, {"y", "aten.remainder.Scalar", "%a{0}, 3", "i64[{1}]"}}), kAdd},
      {kNone, "sorted rows put back",
       on_sorted({{"z", "aten.zeros_like.default", "%x{0}", "f32[{1}, 8]"},
                  {"v", "aten.index_put.default", "%z{0}, [%i{0}], %y{0}", "f32[{1}, 8]"}}),
       kCat},
      {kNone,
       "rows viewed by their count",
       {kRows,
        {"n", "aten.sym_size.int", "%x{0}, 0", "SymInt({1})"},
        {"y", "aten.view.default", "%m{0}, [%n{0}, 8]", "f32[{1}, 8]"}},
       kCat},
      {kNumbersSayExtents,
       "rows times their count",
       {{"n", "aten.sym_size.int", "%x{0}, 0", "SymInt({1})"},
        {"y", "aten.mul.Tensor", "%x{0}, %n{0}", "f32[{1}, 8]"}},
       kCat},
      {kBlocksPair,
       "rows of two blocks beside others",
       {{"r", "aten.remainder.Scalar", "%tokens{0}, 8", "i64[{1}]"},
        {"c", "aten.stack.default", "[%r{0}, %r{0}], 1", "i64[{1}, 2]"},
        {"v", "aten.reshape.default", "%c{0}, [-1, 1]", "i64[2*({1}), 1]"},
        {"er", "_c10d_functional.all_gather_into_tensor.default", "%x{0}, 2, \"g\"", "f32[2*({1}), 8]"},
        {"e", "_c10d_functional.wait_tensor.default", "%er{0}", "f32[2*({1}), 8]"},
        {"y", "aten.gather.default", "%e{0}, 1, %v{0}", "f32[2*({1}), 1]"},
        {"q", "aten.sum.default", "%y{0}", "f32[]"}},
       kAdd},
      {kOrdersPair, "sorted rows beside rows", weighed(on_sorted({})), kAdd},
      {kOrdersPair, "exchanged rows beside rows", weighed(exchanged("y", "x")), kAdd},
      {kOrdersPair, "exchanged rows beside rows, as columns",
       exchanged("e", "x") + Lines{{"c", "aten.cat.default", "[%e{0}, %x{0}], 1", "f32[{1}, 16]"},
                                   {"y", "aten._softmax.default", "%c{0}, 1, False", "f32[{1}, 16]"},
                                   {"q", "aten.sum.dim_IntList", "%y{0}, [0]", "f32[16]"}},
       kAdd},
      {kOrdersPair, "a product over exchanged rows and rows",
       exchanged("e", "x") + Lines{{"t", "aten.permute.default", "%e{0}, [1, 0]", "f32[8, {1}]{{1, 8}}"},
                                   {"y", "aten.mm.default", "%t{0}, %x{0}", "f32[8, 8]"}},
       kAdd},
      {kNone, "rows exchanged and back beside rows", weighed(exchanged("e", "x") + exchanged("y", "e")),
       kAdd},
      {kOrdersPair, "rows by a sort, columns by the tokens",
       Lines{kSort,
             kOrder,
             {"v", "aten.remainder.Scalar", "%tokens{0}, 8", "i64[{1}]"},
             {"y", "aten.index.Tensor", "%x{0}, [%i{0}, %v{0}]", "f32[{1}]"},
             {"q", "aten.sum.default", "%y{0}", "f32[]"}},
       kAdd},
      {kOrdersPair, "sorted rows written over zeros, beside rows",
       on_sorted({{"z", "aten.zeros_like.default", "%x{0}", "f32[{1}, 8]"},
                  {"k", "aten.copy_.default", "%z{0}, %y{0}", "f32[{1}, 8]"},
                  {"p", "aten.mul.Tensor", "%z{0}, %x{0}", "f32[{1}, 8]"},
                  {"v", "aten.sum.dim_IntList", "%p{0}, [0]", "f32[8]"}}),
       kAdd},
      {kNumbersOfTheirRows, "rows sorted twice by one order",
       on_sorted({{"v", "aten.index.Tensor", "%y{0}, [%i{0}]", "f32[{1}, 8]"},
                  {"z", "aten.zeros_like.default", "%x{0}", "f32[{1}, 8]"},
                  {"p", "aten.index_put.default", "%z{0}, [%i{0}], %v{0}", "f32[{1}, 8]"}}),
       kCat},
      {kNone,
       "a share written",
       {kRows,
        kSum,
        kZeros,
        {"i", "aten.add_.Tensor", "%z{0}, %s{0}", "f32[8]"},
        {"y", "aten.neg.default", "%z{0}", "f32[8]"}},
       kAdd},
      {kWritesReachViews,
       "a bias written",
       {kRows,
        kZeros,
        {"i", "aten.add_.Tensor", "%z{0}, %b", "f32[8]"},
        {"y", "aten.neg.default", "%z{0}", "f32[8]"}},
       kAdd},
  };
}

// -------------------------------------------------------------------------------------------------
// the check

class RuleCheck {
 public:
  bool check(const Case& c) {
    const Graph a = parse_text(kSteps.step_of(c.lines), "a"),
                b = parse_text(kSteps.parts_of(c.lines, c.join), "b", a.context);
    const Judgement with = judge(a, b, Condition::kNone);
    if (c.condition == Condition::kNone) {
      fmt::print("right    {:46} {}\n", c.name, name_of(with.fate));
      return with.fate == Fate::kEqual;
    }
    const Judgement without = judge(a, b, c.condition);
    fmt::print("wrong    {:46} {}; not where it need not hold that {}: {}\n", c.name, with.why,
               epweave::name_of(c.condition), name_of(without.fate));
    if (with.fate != Fate::kRefused || without.fate != Fate::kWrong)
      fmt::print(stderr, "{}: {} {}; then {} {}\n", c.name, name_of(with.fate), with.why,
                 name_of(without.fate), without.why);
    return with.fate == Fate::kRefused && without.fate == Fate::kWrong;
  }

 private:
  Judgement judge(const Graph& a, const Graph& b, Condition dropped) {
    const JudgeSetup setup{.kernels = kernels_, .ranks = 2};
    const DroppedCondition drop(dropped);
    return MutantJudge(setup, a, b).judge(a, b, true);
  }

  replay::KernelTable kernels_ = replay::make_cpu_kernels();
};

int run() {
  RuleCheck check;
  bool is_sound = true;
  const std::vector<Case> cases = list_cases();
  for (const Case& c : cases) is_sound &= check.check(c);
  for (Condition condition : conditions()) {
    const bool has_case = std::ranges::any_of(cases, [&](const Case& c) { return c.condition == condition; });
    if (!has_case) fmt::print(stderr, "no wrong rewrite passes without: {}\n", name_of(condition));
    is_sound &= has_case;
  }
  return is_sound ? 0 : 1;
}

}  // namespace
}  // namespace epweave

int main() {
  try {
    return epweave::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
