#include "compare/rewrite/schema_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "compare/rewrite/verify_rewrite.h"
#include "io/file.h"
#include "ir/text/text.h"
#include "ops/bind.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

// The call's line in that form; "": it is in it.
std::string ordered(const std::string& call) {
  const Graph graph = parse_text(
      "epweave text 1\ndevice cpu\n\ngraph\n  %x = placeholder : f32[4, 6]\n  %i = placeholder : i64[4, 6]\n"
      "  %s = placeholder : f32[]\n  %y = " +
          call + "\n  output([%y])\n",
      "step");
  const auto written = write_in_schema_order(graph);
  if (!written) return "";
  const std::string text = print_text(*written);
  const std::size_t begin = text.find("%y = ") + 5;
  return text.substr(begin, text.find(" : ", begin) - begin);
}

// Every argument by name, the last one first, with flags that are left out, and the dimensions of
// joins and softmaxes from the end.
Graph spell_out(Graph graph) {
  Context& context = *graph.context;
  Body& body = graph.step();
  for (NodeId id : body.order) {
    Node& node = body.nodes[id];
    if (node.kind != NodeKind::kCall || node.op == nullptr || !node.op->target.starts_with("aten.") ||
        node.op->returns.empty() || !node.op->returns.front().type.starts_with("Tensor") ||
        !find_schema_problem(context, node).empty())
      continue;
    const BoundArgs bound = bind_args(context, node);
    const TensorType* type = tensor_of(context, node.type);
    const bool is_turned =
        type != nullptr && (node.op->family == OpFamily::kJoin || node.op->family == OpFamily::kNormalise);
    std::vector<Arg> kwargs;
    for (std::size_t i = node.op->params.size(); i-- > 0;) {
      const OpParam& param = node.op->params[i];
      Arg value = bound.values[i];
      if (!bound.is_given(i)) {
        if (param.default_value != "False" && param.default_value != "None") continue;
        value = param.default_value == "None" ? Arg::none() : Arg::boolean(false);
      } else if (is_turned && param.name == "dim" && value.is_int() && value.as_int() >= 0) {
        value = Arg::integer(value.as_int() - std::ssize(type->sizes));
      }
      kwargs.push_back(Arg::text(graph.intern(param.name)));
      kwargs.push_back(value);
    }
    node.args = {};
    node.kwargs = context.args.add(kwargs);
  }
  return graph;
}

}  // namespace

TEST_CASE("calls in the order of the schema") {
  CHECK(ordered("aten.sum.dim_IntList(%x, [0]) : f32[6]") == "");
  CHECK(ordered("aten.sum.dim_IntList(%x, [0], False) : f32[6]") == "aten.sum.dim_IntList(%x, [0])");
  CHECK(ordered("aten.sum.dim_IntList(%x, keepdim=False, dim=[-2]) : f32[6]") ==
        "aten.sum.dim_IntList(%x, [0])");
  CHECK(ordered("aten.sum.dim_IntList(%x, [0], True) : f32[1, 6]") == "");
  CHECK(ordered("aten.slice.Tensor(%x, end=4) : f32[4, 6]") == "aten.slice.Tensor(%x, 0, None, 4)");
  CHECK(ordered("aten.slice.Tensor(%x, -1, 0, 4, 1) : f32[4, 4]") == "aten.slice.Tensor(%x, 1, 0, 4)");
  CHECK(ordered("aten.slice.Tensor(%x, -1, 0, 4, 2) : f32[4, 2]") == "aten.slice.Tensor(%x, 1, 0, 4, 2)");
  CHECK(ordered("aten.add.Tensor(%x, other=%x, alpha=1) : f32[4, 6]") == "aten.add.Tensor(%x, %x)");
  CHECK(ordered("aten.add.Tensor(%x, %x, alpha=2) : f32[4, 6]") == "");
  CHECK(ordered("aten.add.Tensor(%x, %x, alpha=1.0) : f32[4, 6]") == "");
  CHECK(ordered("aten.sort.default(%x, 1) : (f32[4, 6], i64[4, 6])") == "aten.sort.default(%x)");
  CHECK(ordered("aten.sort.default(%x, -1, True) : (f32[4, 6], i64[4, 6])") ==
        "aten.sort.default(%x, 1, True)");
  CHECK(ordered("aten.sort.default(%x, descending=True) : (f32[4, 6], i64[4, 6])") ==
        "aten.sort.default(%x, 1, True)");
  CHECK(ordered("aten.cat.default([%x, %x], dim=-2) : f32[8, 6]") == "aten.cat.default([%x, %x])");
  CHECK(ordered("aten.permute.default(%x, [-1, 0]) : f32[6, 4]{1, 6}") == "aten.permute.default(%x, [1, 0])");
  CHECK(ordered("aten.clone.default(%x, memory_format=None) : f32[4, 6]") == "aten.clone.default(%x)");
  CHECK(ordered("aten.mul.Tensor(other=%x, self=%i) : f32[4, 6]") == "aten.mul.Tensor(%i, %x)");
}

TEST_CASE("calls that are left as they are") {
  // Dimensions that the first operand has not.
  CHECK(ordered("aten.unsqueeze.default(%x, -1) : f32[4, 6, 1]") == "");
  CHECK(ordered("aten.stack.default([%x, %x], -1) : f32[4, 6, 2]") == "");
  CHECK(ordered("aten.select_backward.default(%x, [4, 6, 2], -1, 0) : f32[4, 6, 2]") == "");
  CHECK(ordered("aten.sum.dim_IntList(%x, [-3]) : f32[6]") == "");
  CHECK(ordered("aten.cumsum.default(%s, -1) : f32[]") == "");
  // What does not fit the schema: given twice, of no parameter, missing, by position.
  CHECK(ordered("aten.sum.dim_IntList(%x, [0], dim=[1], keepdim=False) : f32[6]") == "");
  CHECK(ordered("aten.sum.dim_IntList(%x, [0], keep=False) : f32[6]") == "");
  CHECK(ordered("aten.mul.Tensor(self=%x) : f32[4, 6]") == "");
  CHECK(ordered("aten.add.Tensor(%x, %x, 1) : f32[4, 6]") == "");
  // Operators take no names.
  CHECK(ordered("operator.add(a=1, b=2) : SymInt(3)") == "");
  CHECK(ordered("my.op.default(%x, dim=-1) : f32[4, 6]") == "");
}

TEST_CASE("calls of rewrites that are spelled otherwise are proved") {
  const std::string name = "dsv3_debug_ep2.1b_remat";
  const std::string pipeline = GENERATE("chunk{parts=2},concretize", "bucket", "dce,canonicalize");
  const Graph a = read_graph(fmt::format("{}/testdata/graphs/{}.epw.gz", EPWEAVE_SOURCE_DIR, name));
  const Graph b = run_pipeline(a, parse_pipeline(pipeline), {.verify = VerifyPolicy::kOff});
  const Graph spelled = spell_out(b);
  const auto ordered = write_in_schema_order(b), again = write_in_schema_order(spelled);
  REQUIRE(again);
  CHECK(print_text(*again) == print_text(ordered ? *ordered : b));
  CHECK(verify_rewrite(a, b).violations.empty());
  const RewriteReport report = verify_rewrite(a, spelled);
  CHECK((report.violations.empty() ? "" : print_violation(spelled, report.violations.front())) == "");
  CHECK(report.assumptions == verify_rewrite(a, b).assumptions);
}

}  // namespace epweave
