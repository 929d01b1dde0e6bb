// One op run on two halves of the rows, which are joined: right where it makes each row of its own
// row.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "compare/rewrite/verify_rewrite.h"
#include "ir/text/text.h"

namespace epweave {
namespace {

// With what B says of A's nodes, and of the input.
std::string head(const std::string& origins, const std::string& record) {
  return "epweave text 1\ndevice cpu\n" + origins +
         "symbol u range=[4, 8] hint=4 asserts=[Eq(Mod(u, 4), 0)]\n\ngraph\n  %x = placeholder : f32[u, 6]" +
         record + "\n";
}

constexpr const char* kCut = R"text(
  %n = aten.sym_size.int(%x, 0) : SymInt(u) from(chunk size %x)
  %h = operator.floordiv(%n, 2) : SymInt((u//2)) from(chunk size %x)
  %x_s = aten.split_with_sizes.default(%x, [%h, %h], 0) : [f32[(u//2), 6], f32[(u//2), 6]+"6*((u//2))"] from(chunk split %x)
  %x_0 = operator.getitem(%x_s, 0) : f32[(u//2), 6] from(chunk split %x 0/2)
  %x_1 = operator.getitem(%x_s, 1) : f32[(u//2), 6]+"6*((u//2))" from(chunk split %x 1/2)
)text";

// `call` with {} for the operand; `type` with {} for the rows. A tuple's first element is what is
// joined.
struct Op {
  std::string call, type;
  std::string element = {};  // the type of that element, if it is a tuple
};

std::string whole_step(const Op& op) {
  std::string text = head("", "") + fmt::format("  %q = {} : {}\n", fmt::format(fmt::runtime(op.call), "%x"),
                                                fmt::format(fmt::runtime(op.type), fmt::arg("n", "u")));
  if (op.element.empty()) return text + "  output([%q])\n";
  return text + fmt::format("  %e = operator.getitem(%q, 0) : {}\n  output([%e])\n",
                            fmt::format(fmt::runtime(op.element), fmt::arg("n", "u")));
}

std::string step_in_parts(const Op& op) {
  const std::string getitem = op.element.empty() ? "" : ", %e = operator.getitem";
  std::string text = head(fmt::format("origins %x = x, %q = {}{}, %output = output\n",
                                      op.call.substr(0, op.call.find('(')), getitem),
                          " from(chunk kept %x)") +
                     kCut;
  const std::string joined = op.element.empty() ? "q" : "e";
  const std::string type = op.element.empty() ? op.type : op.element;
  const auto rows = [](const std::string& pattern, const char* n) {
    return fmt::format(fmt::runtime(pattern), fmt::arg("n", n));
  };
  for (int k = 0; k < 2; ++k) {
    text += fmt::format("  %q_{0} = {1} : {2} from(chunk body %q {0}/2)\n", k,
                        fmt::format(fmt::runtime(op.call), fmt::format("%x_{}", k)), rows(op.type, "(u//2)"));
    if (!op.element.empty())
      text += fmt::format("  %e_{0} = operator.getitem(%q_{0}, 0) : {1} from(chunk body %e {0}/2)\n", k,
                          rows(op.element, "(u//2)"));
  }
  return text + fmt::format(
                    "  %j = aten.cat.default([%{0}_0, %{0}_1], 0) : {1} from(chunk materialize %{0})\n"
                    "  output([%j]) from(chunk kept %output)\n",
                    joined, rows(type, "u"));
}

// The invariants that the parts break, each once; empty: they are proved.
std::string broken(const Op& op) {
  const Graph a = parse_text(whole_step(op), "a");
  const Graph b = parse_text(step_in_parts(op), "b", a.context);
  std::string names;
  for (const Violation& violation : verify_rewrite(a, b).violations)
    if (names.find(violation.invariant) == names.npos)
      names += (names.empty() ? "" : ", ") + violation.invariant;
  return names;
}

TEST_CASE("parts of ops that need all rows are refused, of others proved") {
  const std::string rows = "f32[{n}, 6]", pair = "(f32[{n}, 6], i64[{n}, 6])";
  const std::map<std::string, std::pair<Op, std::string>> cases = {
      {"flip the rows", {{"aten.flip.default({}, [0])", rows}, "rewrite-rows"}},
      {"flip each row", {{"aten.flip.default({}, [1])", rows}, ""}},
      {"flip both", {{"aten.flip.default({}, [-1, -2])", rows}, "rewrite-rows"}},
      {"roll the rows", {{"aten.roll.default({}, [1], [0])", rows}, "rewrite-rows"}},
      {"roll all elements", {{"aten.roll.default({}, [1])", rows}, "rewrite-rows"}},
      {"roll each row", {{"aten.roll.default({}, [1], [1])", rows}, ""}},
      {"cumsum of rows", {{"aten.cumsum.default({}, 0)", rows}, "rewrite-rows"}},
      {"cumsum in a row", {{"aten.cumsum.default({}, -1)", rows}, ""}},
      {"cumprod", {{"aten.cumprod.default({}, 0)", rows}, "rewrite-rows"}},
      {"cummax", {{"aten.cummax.default({}, 0)", pair, rows}, "rewrite-rows"}},
      {"tril", {{"aten.tril.default({})", rows}, "rewrite-rows"}},
      {"triu", {{"aten.triu.default({}, 1)", rows}, "rewrite-rows"}},
      {"softmax over rows", {{"aten._softmax.default({}, 0, False)", rows}, "rewrite-rows"}},
      {"softmax of a row", {{"aten._softmax.default({}, 1, False)", rows}, ""}},
      {"sort of rows", {{"aten.sort.default({}, 0)", pair, rows}, "rewrite-rows, rewrite-join"}},
      {"sort in a row", {{"aten.sort.default({})", pair, rows}, ""}},
      {"argsort of rows", {{"aten.argsort.default({}, 0)", "i64[{n}, 6]"}, "rewrite-rows, rewrite-join"}},
      {"largest of a row", {{"aten.amax.default({}, [1], True)", "f32[{n}, 1]"}, ""}},
      {"a view", {{"aten.unsqueeze.default({}, 1)", "f32[{n}, 1, 6]"}, ""}},
      {"relu", {{"aten.relu.default({})", rows}, ""}},
  };
  for (const auto& [name, expected] : cases) {
    INFO(name);
    CHECK(broken(expected.first) == expected.second);
  }
}

}  // namespace
}  // namespace epweave
