// The rules by which `verify A B` accepts, by execution: for each side condition
// (compare/rewrite/conditions.h) a wrong rewrite that is refused, that is accepted once the
// condition is dropped, and that computes something else; and right rewrites beside it, which are
// accepted and compute the same. Prints a line for each; ctest compares them with
// testdata/rules.txt. Exit code 1 where a condition lets no wrong rewrite pass, or a right one is
// refused or is wrong.
//
//   check_rules testdata/verify_rewrite
//
// Pairs are written below, by their calls, or are golden tests of `verify A B`. All golden pairs
// that are accepted without an assumption are executed, too, and must compute the same. Every pair
// is executed on several random inputs; right ones with other numbers of rows, too, and with
// inputs that lie in memory in other ways.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "analysis/verify.h"
#include "compare/rewrite/conditions.h"
#include "compare/rewrite/verify_rewrite.h"
#include "contracts.h"
#include "golden_pairs.h"
#include "ir/text/text.h"
#include "mutant_judge.h"
#include "strict_kernels.h"
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
  // What the second graph has otherwise: a text that is there once, and what stands for it.
  std::vector<std::pair<std::string, std::string>> changes = {};
  std::int64_t times = 1;  // so many times as many rows
};

struct GoldenCase {
  Condition condition;  // kNone: a right rewrite
  std::string name;     // of the test
};

const CallSteps kSteps{
    .head =
        "epweave text 1\ndevice cpu\nsymbol u range=[4, 4096] hint=8 asserts=[Eq(Mod(u, 4), 0)]\n"
        "info world_size = 2\ninfo rank = 0\ngroup g ranks=[0, 1] description=g axes=[g]\n",
    .inputs = {{"x", "f32[{1}, 8]", "8*({1})",
                " role=user which=x bind(u, {\"kind\": \"CallMethodKey\", \"name\": \"size\"}, "
                "{\"kind\": \"SequenceKey\", \"idx\": 0})"},
               {"tokens", "i64[{1}]", "{1}", " role=user which=tokens"},
               {"w", "f32[8, 8]", "", " role=parameter fqn=tok_embeddings.weight"},
               {"b", "f32[8]", "", " role=parameter fqn=b"}},
    .outputs = "output other\n"};

// The same steps with inputs that lie in memory in other ways, and other numbers of rows.
CallSteps stretch_inputs(CallSteps steps) {
  steps.inputs[0].type += "{{16, 1}}";
  steps.inputs[0].offset = "16*({1})";
  steps.inputs[2].type += "{{1, 8}}";
  return steps;
}

// Inputs of golden pairs, whatever they are called: numbers below {0} pick rows of what has as
// many.
constexpr const char* kAnyInputs =
    R"({{"inputs": [{{"name": "*attention_masks*", "dims": 1, "make": "documents"}},
                    {{"name": "*num_blocks", "make": "block-table"}},
                    {{"name": "*_indices", "make": "block-table"}},
                    {{"dtype": "floating", "make": "uniform"}},
                    {{"dtype": "c64", "make": "uniform"}},
                    {{"make": "integers", "below": {0}}}]}})";
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
// Elements of the sum where a mask says so, elsewhere a number.
Lines on_sum_by_mask(std::string_view number) {
  return {kRows,
          kSum,
          {"c", "aten.gt.Scalar", "%b, 0.0", "b8[8]"},
          {"y", "aten.where.ScalarOther", fmt::format("%c{{0}}, %s{{0}}, {}", number), "f32[8]"}};
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

// Rows of two groups: how many each has, and of each row where in its group it is, and where that
// begins.
const Lines kCounts = {{"r", "aten.remainder.Scalar", "%tokens{0}, 2", "i64[{1}]"},
                       {"h", "aten.one_hot.default", "%r{0}, 2", "i64[{1}, 2]"},
                       {"c", "aten.sum.dim_IntList", "%h{0}, [0]", "i64[2]"}};
const Lines kPlacesInGroups =
    kCounts + Lines{kNumbers,
                    {"e", "aten.cumsum.default", "%c{0}, 0", "i64[2]"},
                    {"d", "aten.sub.Tensor", "%e{0}, %c{0}", "i64[2]"},
                    {"g", "aten.repeat_interleave.Tensor", "%c{0}, output_size=sym({1})", "i64[{1}]"},
                    {"f", "aten.index.Tensor", "%d{0}, [%g{0}]", "i64[{1}]"},
                    {"v", "aten.sub.Tensor", "%a{0}, %f{0}", "i64[{1}]"}};

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
      {kNone, "a sum beside zeros by a mask", on_sum_by_mask("0.0"), kAdd},
      {kPadsZeros, "a sum beside ones by a mask", on_sum_by_mask("1.0"), kAdd},
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
       weighed(kPlacesInGroups + Lines{{"y", "aten.index.Tensor", "%x{0}, [%v{0}]", "f32[{1}, 8]"}}), kAdd},
      {kNone, "places among sorted rows",
       on_sorted(kPlacesInGroups + Lines{{"k", "aten.add.Tensor", "%v{0}, %f{0}", "i64[{1}]"},
                                         {"z", "aten.index.Tensor", "%y{0}, [%k{0}]", "f32[{1}, 8]"},
                                         {"q", "aten.sum.dim_IntList", "%z{0}, [0]", "f32[8]"}}),
       kAdd},
      {kMovesOnePlace, "the first of the sorted rows for each",
       on_sorted({kNumbers,
                  {"v", "aten.sub.Tensor", "%a{0}, %a{0}", "i64[{1}]"},
                  {"z", "aten.index.Tensor", "%y{0}, [%v{0}]", "f32[{1}, 8]"},
                  {"q", "aten.sum.dim_IntList", "%z{0}, [0]", "f32[8]"}}),
       kAdd},
      {kRepeatsCounted, "places by counts that were sorted",
       counted(kCounts +
               Lines{{"s", "aten.sort.stable", "%c{0}, stable=True", "(i64[2], i64[2])"},
                     {"d", "operator.getitem", "%s{0}, 0", "i64[2]"},
                     {"y", "aten.repeat_interleave.Tensor", "%d{0}, output_size=sym({1})", "i64[{1}]"}}),
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
      {kNone, "sorted rows picked by numbers written to their order",
       on_sorted({kNumbers,
                  {"unset", "aten.empty_like.default", "%i{0}", "i64[{1}]"},
                  {"way", "aten.index_put.default", "%unset{0}, [%i{0}], %a{0}", "i64[{1}]"},
                  {"v", "aten.index.Tensor", "%y{0}, [%way{0}]", "f32[{1}, 8]"}}),
       kCat},
      {kOrdersPair, "sorted rows picked by an inverse that another one overwrote",
       on_sorted({{"d", "aten.argsort.default", "%tokens{0}, -1, True", "i64[{1}]"},
                  kNumbers,
                  {"unset", "aten.empty_like.default", "%i{0}", "i64[{1}]"},
                  {"way", "aten.index_put_.default", "%unset{0}, [%i{0}], %a{0}", "i64[{1}]"},
                  {"other", "aten.index_put_.default", "%unset{0}, [%d{0}], %a{0}", "i64[{1}]"},
                  {"v", "aten.index.Tensor", "%y{0}, [%way{0}]", "f32[{1}, 8]"}}),
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
      // One line changed in the second graph.
      {kSameTarget,
       "another op",
       on_rows("aten.relu.default", "%m{0}"),
       kCat,
       {{"%y_1 = aten.relu.default", "%y_1 = aten.sigmoid.default"}}},
      {kPieceIsItsElement,
       "the first piece for the second",
       {kRows},
       kCat,
       {{"%x_1 = operator.getitem(%x_s, 1) : f32[(u//2), 8]+\"8*((u//2))\"",
         "%x_1 = operator.getitem(%x_s, 0) : f32[(u//2), 8]"}}},
      {kJoinsShares,
       "rows as columns",
       {kRows},
       "aten.cat.default([{0}, {1}], 1)",
       {{"%joined = aten.cat.default([%m_0, %m_1], 1) : f32[u, 8]",
         "%joined = aten.cat.default([%m_0, %m_1], 1) : f32[(u//2), 16]"}}},
      {kCarriesSums,
       "ones added to a sum",
       {kRows,
        {"z", "aten.new_ones.default", "%m{0}, [8]", "f32[8]"},
        {"i", "aten.add_.Tensor", "%b{0}, %z{0}", "f32[8]"},
        {"y", "aten.relu.default", "%m{0}", "f32[{1}, 8]"}},
       kCat,
       {{"%i_0 = aten.add_.Tensor(%b_0,", "%i_0 = aten.add_.Tensor(%b,"},
        {"%i_1 = aten.add_.Tensor(%b_1,", "%i_1 = aten.add_.Tensor(%i_0,"}}},
      {kNone,
       "a sum added to another",
       {kRows,
        kSum,
        {"i", "aten.add_.Tensor", "%b{0}, %s{0}", "f32[8]"},
        {"y", "aten.relu.default", "%m{0}", "f32[{1}, 8]"}},
       kCat,
       {{"%i_0 = aten.add_.Tensor(%b_0,", "%i_0 = aten.add_.Tensor(%b,"},
        {"%i_1 = aten.add_.Tensor(%b_1,", "%i_1 = aten.add_.Tensor(%i_0,"}}},
      {kSeesLastCarried,
       "a sum read between the parts' writes",
       {kRows,
        kSum,
        {"i", "aten.add_.Tensor", "%b{0}, %s{0}", "f32[8]"},
        {"k", "aten.neg.default", "%b", "f32[8]"},
        {"y", "aten.mul.Tensor", "%m{0}, %k{0}", "f32[{1}, 8]"}},
       kCat,
       {{"%i_0 = aten.add_.Tensor(%b_0,", "%i_0 = aten.add_.Tensor(%b,"},
        {"  %i_1 = aten.add_.Tensor(%b_1, %s_1) : f32[8] from(chunk body %i 1/2)\n", ""},
        {"  %k_1 =", "  %i_1 = aten.add_.Tensor(%i_0, %s_1) : f32[8] from(chunk body %i 1/2)\n  %k_1 ="}}},
      {kMasksByData,
       "rows whose number is not 0",
       {kRows,
        kNumbers,
        {"c", "aten._to_copy.default", "%a{0}, dtype=b8", "b8[{1}]"},
        {"y", "aten.index_put.default", "%m{0}, [%c{0}], %b", "f32[{1}, 8]"}},
       kCat},
      {kMovesOnePlace, "places moved back by twice where their groups begin",
       on_sorted(kPlacesInGroups + Lines{{"k", "aten.sub.Tensor", "%a{0}, %f{0}, alpha=2", "i64[{1}]"},
                                         {"z", "aten.index.Tensor", "%y{0}, [%k{0}]", "f32[{1}, 8]"},
                                         {"q", "aten.sum.dim_IntList", "%z{0}, [0]", "f32[8]"}}),
       kAdd},
      {kSplitsInShares,
       "ids in parts of two and six beside rows in parts of four",
       {kNumbers,
        {"y", "aten.index.Tensor", "%tokens{0}, [%a{0}]", "i64[{1}]"},
        {"q", "aten.sum.dim_IntList", "%y{0}, [0]", "i64[]"}},
       kAdd,
       {{"(%tokens, [%h, %h], 0) : [i64[(u//2)], i64[(u//2)]+\"(u//2)\"]",
         "(%tokens, [sym((u//2) - 2), sym((u//2) + 2)], 0) : [i64[(u//2) - 2], i64[(u//2) + 2]+\"(u//2) - "
         "2\"]"},
        {"(%tokens_s, 0) : i64[(u//2)]", "(%tokens_s, 0) : i64[(u//2) - 2]"},
        {"(%tokens_s, 1) : i64[(u//2)]+\"(u//2)\"", "(%tokens_s, 1) : i64[(u//2) + 2]+\"(u//2) - 2\""}}},
      {kMovesIntegers,
       "rows by numbers of 8 bits",
       weighed({kNumbers,
                {"c", "aten._to_copy.default", "%a{0}, dtype=i8", "i8[{1}]"},
                {"d", "aten._to_copy.default", "%c{0}, dtype=i64", "i64[{1}]"},
                {"y", "aten.index.Tensor", "%x{0}, [%d{0}]", "f32[{1}, 8]"}}),
       kAdd,
       {},
       40},
  };
}

// By golden tests: what is made of several ranks' buffers, attention, and what takes more than one
// line for a call and its parts.
std::vector<GoldenCase> list_golden_cases() {
  using enum Condition;
  return {
      {kNone, "schema_order"},
      {kSameInputs, "wrong_order_of_inputs"},
      {kBindsAlike, "symbol_of_another_call"},
      {kSentUnwritten, "wrong_offload_before_write"},
      {kLoadedUnwritten, "wrong_write_of_loaded"},
      {kSameConstants, "slice_step_divided"},
      {kSameOperands, "wrong_behind_outside"},
      {kSameKeywords, "wrong_schema_order_default"},
      {kShowsAlike, "strides_reshape_copy"},
      {kShowsAlike, "strides_reshape_view"},
      {kShowsAlike, "wrong_reshape_of_part"},
      {kLiesAlike, "strides_as_strided"},
      {kNone, "accepted"},
      {kTakesAlike, "wrong_named_in_one_part"},
      {kCutsAlike, "wrong_cut_along_other_dimension"},
      {kCutsAlike, "wrong_cut_in_other_blocks"},
      {kSizesFollow, "wrong_size_of_other_tensor"},
      {kSplitsTheWhole, "wrong_split_of_loaded"},
      {kNone, "moved"},
      {kNone, "bucket_twice"},
      {kNone, "moved_by_coordinate"},
      {kNone, "moved_reshape"},
      {kNone, "chain_merged_memory"},
      {kMovedElements, "moved_other_shard"},
      {kMovedElements, "wrong_bucket_twice_offset"},
      {kMovedElements, "scatter_rows_swapped"},
      {kCastsAlike, "wrong_bucket_twice_dtype"},
      {kSendsInGroup, "wrong_bucket_twice_group"},
      {kReducesAlike, "moved_reduction"},
      {kForgetsWritten, "moved_written"},
      {kForgetsWritten, "moved_written_part"},
      {kReshapesCopy, "wrong_moved_reshape"},
      {kMovedStays, "moved_write_to_input"},
      {kMovedStays, "moved_write_to_reshaped"},
      {kNone, "taken_rows"},
      {kNone, "taken_rows_of_same_operands"},
      {kTakesSameRows, "taken_rows_next"},
      {kTakesSameRows, "taken_rows_of_cat"},
      {kNone, "chain_merged_copies"},
      {kMergesSameCalls, "wrong_merged_written"},
      {kMergesUnwritten, "wrong_merged_element_written"},
      {kMergesUnwritten, "wrong_merged_written"},
      {kNone, "repeat_of_stale_value"},
      {kNone, "joined_behind_write"},
      {kNone, "columns_behind_parts_writes"},
      {kSeesNoOtherWrite, "wrong_unsafe_pieces"},
      {kSeesWritesInEach, "wrong_stale_clone"},
      {kSeesWritesInEach, "wrong_stale_join"},
      {kSeesWritesInEach, "wrong_element_recomputed"},
      {kJoinsAllWritten, "joined_before_write"},
      {kSeesAllParts, "read_between_parts_writes"},
      {kSeesOwnShare, "columns_between_parts_writes"},
      {kLeavesWritten, "returned_write_dropped"},
      {kNone, "aliases_apart"},
      {kMergesNoDraws, "wrong_merged_draws"},
      {kDrawsInOrder, "wrong_draws_swapped"},
      {kDoesAllEffects, "draw_dropped"},
      {kResultsApart, "wrong_aliases_of_input"},
      {kResultsApart, "wrong_alias_of_loaded"},
      {kNone, "attention_shared_heads"},
      {kNone, "attention_prefix"},
      {kCutsAtQueries, "wrong_flex_heads"},
      {kLooksUpInAll, "attention_batch_captured_whole"},
      {kHidesLaterKeys, "attention_prefix_not_causal"},
      {kCausalOfAllQueries, "wrong_causal_keys"},
      {kMasksFromItsRow, "wrong_causal_first_row"},
      {kMasksTheKeys, "wrong_causal_columns"},
      {kMasksByInfinity, "wrong_causal_finite"},
      {kSameFunctions, "wrong_score_function"},
      {kJoinsEarlierKeys, "wrong_prefix_part_twice"},
      {kAddsLaterGradients, "attention_prefix_summand"},
      {kAddsLaterGradients, "attention_prefix_own_summand"},
      {kNone, "groups_of_rows"},
      {kCountsTheSorted, "groups_of_another_cut"},
      {kCountsTheSorted, "split_sizes_of_another_cut"},
      {kZerosUnwritten, "wrong_zeros_written"},
      {kCountsRows, "count_of_all_rows"},
      {kExtentsAddUp, "wrong_ones_by_quotient"},
      {kExtentsAddUp, "wrong_ones_like_by_quotient"},
      {kExtentsAddUp, "wrong_expanded_by_quotient"},
      {kLeavesOfRows, "count_of_all_rows"},
      {kSameTypes, "wrong_taken_rows_more"},
      {kSameGroup, "wrong_reduced_on_other_axis"},
      {kMovesUnwritten, "wrong_moved_before_write"},
      {kWritesBeforeShown, "wrong_moved_filled_again"},
      {kShowsApart, "wrong_moved_shown_twice"},
      {kTakesRows, "wrong_taken_rows_own_sum"},
      {kBeginsABlock, "attention_prefix_inside_a_block"},
      {kCountsFromItsRow, "wrong_flex_counts_from_0"},
      {kSortsUpwards, "groups_sorted_downwards"},
      {kMarksDiffer, "groups_of_marks"},
      {kMasksByData, "wrong_mask_of_numbers"},
      {kNone, "runs_of_counts"},
      {kNone, "groups_of_runs"},
      {kOrdersPair, "wrong_runs_beside_rows"},
      {kWritesRowsOfWhole, "wrong_numbers_in_whole"},
      {kCountsTheSorted, "wrong_runs_of_other_ids"},
      {kSortsUpwards, "groups_of_runs_downwards"},
      {kNone, "runs_joined"},
      {kEqualPartsAreOne, "wrong_runs_of_another_cut"},
      {kEqualPartsAreOne, "wrong_runs_of_two_cuts"},
      {kEqualPartsAreOne, "wrong_groups_of_joined_ids"},
      {kRemainderNumbersTokens, "wrong_remainder_of_way_back"},
      {kRemainderNumbersTokens, "wrong_remainder_of_second_sort"},
      {kCountsOverAndOver, "groups_of_classes_downwards"},
      {kSumsEachClass, "groups_of_other_period"},
      {kNone, "groups_of_places"},
      {kSumsRunsOfPlaces, "wrong_groups_of_places"},
      {kPlacesBeginRuns, "wrong_places_begin"},
      {kOwnTablesCutOwnRows, "wrong_sizes_beside_columns"},
      {kOwnTablesCutOwnRows, "wrong_sizes_of_whole_rows"},
      {kReducesRanksBySum, "wrong_mean_of_counts"},
      {kNone, "padded_statistics_gradient"},
      {kStatisticsOfRows, "wrong_statistics_joined"},
      {kStatisticsOfRows, "wrong_statistics_summed"},
      {kStatisticsOfRows, "wrong_statistics_of_all"},
      {kStatisticsOfRows, "wrong_statistics_split"},
      {kStatisticsOfRows, "wrong_statistics_uneven"},
      {kStatisticsOfRows, "wrong_statistics_of_others"},
      {kSameDataAbout, "wrong_data_of_input"},
      {kSameWorld, "wrong_number_of_ranks"},
      {kSameWorld, "wrong_rank_agnostic"},
      {kSaysNoMore, "wrong_range_narrowed"},
      {kSaysNothingOfOthers, "wrong_said_of_another_number"},
      {kShowsAllSent, "wrong_launch_beside_moved"},
      {kGathersFromOwnPlace, "wrong_moved_by_coordinate_in_place"},
      {kFunctionsWriteNothing, "wrong_flex_writes"},
      {kDividesNoDraws, "wrong_draw_divided"},
      {kLoadsAlike, "wrong_offload_other_strides"},
      {kLoadsAllAddressed, "wrong_offload_addressed"},
      {kKeepsSent, "wrong_offload_not_kept"},
      {kFreesNoCallers, "wrong_offload_frees_input"},
      {kKeepsEarlierKeys, "attention_prefix_stale_values"},
      {kMasksItsKeys, "wrong_prefix_length"},
      {kCutsTables, "attention_batch_tables_whole"},
      {kMasksAsKernelsRead, "wrong_causal_heads"},
      {kMasksAsKernelsRead, "wrong_causal_dtype"},
      {kMasksAsKernelsRead, "wrong_causal_alignment"},
      {kReadsArrived, "wrong_moved_read_unwaited"},
      {kLaunchesUndisturbed, "wrong_moved_sent_in_flight"},
      {kLaunchesUndisturbed, "wrong_moved_sent_in_flight_as_integers"},
      {kTakesUnwritten, "wrong_taken_cat_written"},
      {kTakesUnwritten, "wrong_taken_cat_written_alike"},
      {kNumbersAddUp, "wrong_number_of_offsets"},
      {kNumbersAddUp, "wrong_number_of_strides"},
      {kNumbersAddUp, "wrong_number_of_offsets_taken"},
      {kFreedUntouched, "wrong_offload_reshape_freed"},
  };
}

// -------------------------------------------------------------------------------------------------
// the check

std::string change(std::string text, const Case& c) {
  for (const auto& [from, to] : c.changes) {
    const std::size_t at = text.find(from);
    EPWEAVE_CHECK(at != std::string::npos && text.find(from, at + 1) == std::string::npos);
    text.replace(at, from.size(), to);
  }
  return text;
}

// With so many times the rows that it was traced with.
void scale_rows(Graph& graph, std::int64_t times) {
  for (Symbol& symbol : graph.symbols)
    if (symbol.hint) *symbol.hint *= times;
}

class RuleCheck {
 public:
  bool check(const Case& c) {
    const auto [a, b] = write(kSteps, c);
    return c.condition == Condition::kNone ? check_right(c.name, judge(a, b)) && holds_otherwise(c)
                                           : check_wrong(c.name, c.condition, {a, b});
  }

  bool check(const GoldenCase& c, const GoldenPair& pair) {
    return c.condition == Condition::kNone ? check_right(c.name, judge(pair.a, pair.b))
                                           : check_wrong(c.name, c.condition, {pair.a, pair.b});
  }

  // What is accepted, computes the same. Pairs of which A cannot be executed are listed.
  bool check_accepted(const GoldenPair& pair) {
    for (const std::int64_t times : {1, 3}) {
      Graph a = pair.a, b = pair.b;
      scale_rows(a, times);
      scale_rows(b, times);
      if (!verify_graph(b).empty()) continue;
      const RewriteReport report = verify_rewrite(a, b);
      if (!report.violations.empty() || !report.assumptions.empty()) continue;
      const Judgement judgement = judge(a, b);
      if (judgement.fate == Fate::kEqual) continue;
      if (judgement.fate == Fate::kNoStep) {
        if (times == 1) fmt::print("accepted {:46} not executed: no inputs or kernels for A\n", pair.name);
        continue;
      }
      fmt::print(stderr, "{}, {} times the rows: accepted, and {}: {}\n", pair.name, times,
                 name_of(judgement.fate), judgement.why);
      return false;
    }
    return true;
  }

 private:
  struct Pair {
    Graph a, b;
  };
  static Pair write(const CallSteps& steps, const Case& c) {
    Graph a = parse_text(steps.step_of(c.lines), "a");
    Graph b = parse_text(change(steps.parts_of(c.lines, c.join), c), "b", a.context);
    scale_rows(a, c.times);
    scale_rows(b, c.times);
    return {std::move(a), std::move(b)};
  }

  bool check_right(const std::string& name, const Judgement& judgement) {
    fmt::print("right    {:46} {}\n", name, name_of(judgement.fate));
    if (judgement.fate != Fate::kEqual)
      fmt::print(stderr, "{}: {} {}\n", name, name_of(judgement.fate), judgement.why);
    return judgement.fate == Fate::kEqual;
  }

  // The same with other rows and strides, where that is a step.
  bool holds_otherwise(const Case& c) {
    static const CallSteps kStretched = stretch_inputs(kSteps);
    bool is_sound = true;
    for (const std::int64_t times : {2, 3}) {
      auto [a, b] = write(times == 2 ? kSteps : kStretched, c);
      scale_rows(a, times);
      scale_rows(b, times);
      const Judgement judgement = judge(a, b);
      if (judgement.fate == Fate::kEqual || judgement.fate == Fate::kNoStep) continue;
      fmt::print(stderr, "{}, {} times the rows: {} {}\n", c.name, times, name_of(judgement.fate),
                 judgement.why);
      is_sound = false;
    }
    return is_sound;
  }

  // Refused, or accepted under an assumption that is printed; without the condition accepted, under
  // no such assumption, and wrong.
  bool check_wrong(const std::string& name, Condition condition, const Pair& pair) {
    const RewriteReport report = verify_rewrite(pair.a, pair.b);
    const Judgement with = judge(pair.a, pair.b);
    const DroppedCondition drop(condition);
    const RewriteReport dropped = verify_rewrite(pair.a, pair.b);
    const Judgement without = judge(pair.a, pair.b);
    const bool is_assumed =
        report.violations.empty() && dropped.assumptions.size() < report.assumptions.size();
    const std::string how = is_assumed ? "assumed" : with.why;
    // Of what computes the same, it is asked what else it breaks.
    const std::string broken = without.fate == Fate::kEqual ? find_contract(pair.a, pair.b) : "";
    fmt::print("wrong    {:46} {}; not where it need not hold that {}: {}\n", name, how,
               epweave::name_of(condition), broken.empty() ? name_of(without.fate) : broken);
    const bool is_wrong =
        without.fate == Fate::kWrong || without.fate == Fate::kNotExecutable || !broken.empty();
    const bool is_sound = (is_assumed || with.fate == Fate::kRefused) && is_wrong;
    if (!is_sound)
      fmt::print(stderr, "{}: {} {}; then {} {}\n", name, name_of(with.fate), with.why, name_of(without.fate),
                 without.why);
    return is_sound;
  }

  std::string find_contract(const Graph& a, const Graph& b) const {
    return find_broken_contract(a, b, {kernels_, recipes_.back()});
  }

  // Positions may be too large for some step's rows; then they are made smaller.
  Judgement judge(const Graph& a, const Graph& b) {
    Judgement judgement;
    for (const replay::Recipe& recipe : recipes_) {
      const JudgeSetup setup{.kernels = kernels_, .recipe = &recipe};
      judgement = MutantJudge(setup, a, b).judge(a, b, true);
      if (judgement.fate != Fate::kNoStep) break;
    }
    return judgement;
  }

  replay::KernelTable kernels_ = make_strict_kernels();
  std::vector<replay::Recipe> recipes_ = {replay::torchtitan_recipe(),
                                          replay::parse_recipe(fmt::format(kAnyInputs, 4), "rules"),
                                          replay::parse_recipe(fmt::format(kAnyInputs, 2), "rules")};
};

bool check_goldens(RuleCheck& check, const std::string& folder) {
  bool is_sound = true;
  const std::vector<GoldenCase> cases = list_golden_cases();
  for (const GoldenCase& c : cases) {
    const auto pair = read_golden_pair(fmt::format("{}/{}.test", folder, c.name));
    if (!pair) fmt::print(stderr, "{}: compares no two graphs\n", c.name);
    is_sound &= pair && check.check(c, *pair);
  }
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  for (const std::string& path : paths)
    if (const auto pair = read_golden_pair(path)) is_sound &= check.check_accepted(*pair);
  return is_sound;
}

int run(const std::string& folder) {
  RuleCheck check;
  bool is_sound = true;
  const std::vector<Case> cases = list_cases();
  const std::vector<GoldenCase> goldens = list_golden_cases();
  for (const Case& c : cases) is_sound &= check.check(c);
  is_sound &= check_goldens(check, folder);
  for (Condition condition : conditions()) {
    const auto is_of = [&](const auto& c) { return c.condition == condition; };
    const bool has_case = std::ranges::any_of(cases, is_of) || std::ranges::any_of(goldens, is_of);
    if (!has_case) fmt::print(stderr, "no wrong rewrite passes without: {}\n", name_of(condition));
    is_sound &= has_case;
  }
  return is_sound ? 0 : 1;
}

}  // namespace
}  // namespace epweave

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: check_rules FOLDER, of golden tests of `verify A B`\n");
    return 2;
  }
  try {
    return epweave::run(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
