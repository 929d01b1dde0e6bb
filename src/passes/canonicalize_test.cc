#include "passes/canonicalize.h"

#include <catch2/catch.hpp>

#include "passes/test_text.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

// The code of the normal form, which must itself be normal.
std::string canonical_code(const std::string& nodes) {
  const Graph result =
      canonicalize(parse_test_graph(fmt::format("symbol u0\noutput other\n\ngraph\n{}", nodes)));
  CHECK(same_code(result, canonicalize(result)));
  return print_code(result);
}

TEST_CASE("detach is its input") {
  CHECK(canonical_code(R"(
  %x = placeholder : f32[4]
  %a = aten.detach.default(%x) : f32[4]
  %b = aten.detach.default(%a) : f32[4]
  %y = aten.add.Tensor(%b, %a) : f32[4]
  output((%y, %b))
)") == R"(%x = placeholder
%y = aten.add.Tensor(%x, %x)
output((%y, %x))
)");
}

// As in a step with selective checkpointing, whose saved exchange backward waits for once more.
// The wait for a wait stays.
TEST_CASE("a second wait for a collective is the first") {
  CHECK(canonical_code(R"(
  %x = placeholder : f32[4]
  %sum = _c10d_functional.all_reduce.default(%x, "sum", "0") : f32[4]
  %saved = aten.detach.default(%sum) : f32[4]
  %w = _c10d_functional.wait_tensor.default(%sum) : f32[4]
  %ww = _c10d_functional.wait_tensor.default(%w) : f32[4]
  %other = _c10d_functional.all_reduce.default(%ww, "sum", "0") : f32[4]
  %again = _c10d_functional.wait_tensor.default(%saved) : f32[4]
  %wo = _c10d_functional.wait_tensor.default(%other) : f32[4]
  output((%ww, %again, %wo))
)") == R"(%x = placeholder
%sum = _c10d_functional.all_reduce.default(%x, "sum", "0")
%w = _c10d_functional.wait_tensor.default(%sum)
%ww = _c10d_functional.wait_tensor.default(%w)
%other = _c10d_functional.all_reduce.default(%ww, "sum", "0")
%wo = _c10d_functional.wait_tensor.default(%other)
output((%ww, %w, %wo))
)");
}

TEST_CASE("views of the same shape are their input, other views are spelled reshape") {
  CHECK(canonical_code(R"(
  %x = placeholder : f32[u0, 4]
  %same = aten.view.default(%x, [-1, 4]) : f32[2*u0 - u0, 4]
  %flat = aten.view.default(%same, [-1]) : f32[4*u0]
  %unsafe = aten._unsafe_view.default(%flat, size=[-1, 2]) : f32[2*u0, 2]
  %again = aten.reshape.default(%unsafe, [-1, 2]) : f32[u0*2, 2]
  %bits = aten.view.dtype(%again, i32) : i32[2*u0, 2]
  %untyped = aten.view.default(%bits, [-1])
  %swapped = aten.reshape.default(%x, [4, -1]) : f32[4, u0]
  output((%bits, %untyped, %swapped))
)") == R"(%x = placeholder
%flat = aten.reshape.default(%x, [-1])
%unsafe = aten.reshape.default(%flat, shape=[-1, 2])
%bits = aten.view.dtype(%unsafe, i32)
%untyped = aten.reshape.default(%bits, [-1])
%swapped = aten.reshape.default(%x, [4, -1])
output((%bits, %untyped, %swapped))
)");
}

TEST_CASE("two transposes are none") {
  CHECK(canonical_code(R"(
  %x = placeholder : f32[4, 3]
  %t = aten.t.default(%x) : f32[3, 4]
  %tt = aten.t.default(%t) : f32[4, 3]
  %ttt = aten.t.default(%tt) : f32[3, 4]
  %y = aten.t.default(%ttt) : f32[4, 3]
  output((%y,))
)") == R"(%x = placeholder
output((%x,))
)");
}

TEST_CASE("a transpose that is used elsewhere stays, and so does one that nothing ever used") {
  CHECK(canonical_code(R"(
  %x = placeholder : f32[4, 3]
  %t = aten.t.default(%x) : f32[3, 4]
  %tt = aten.t.default(%t) : f32[4, 3]
  %dead = aten.t.default(%tt) : f32[3, 4]
  output((%t, %tt))
)") == R"(%x = placeholder
%t = aten.t.default(%x)
%dead = aten.t.default(%x)
output((%t, %x))
)");
}

TEST_CASE("a slice of everything is its input") {
  CHECK(canonical_code(R"(
  %x = placeholder : f32[8, u0]
  %n = placeholder : SymInt(u0)
  %all = aten.slice.Tensor(%x, 0, 0, 8) : f32[8, u0]
  %beyond = aten.slice.Tensor(%all, -2, None, 100) : f32[8, u0]
  %open = aten.slice.Tensor(%beyond, 1, 0, 9223372036854775807) : f32[8, u0]
  %defaults = aten.slice.Tensor(%open) : f32[8, u0]
  %short = aten.slice.Tensor(%defaults, 0, 0, 7) : f32[7, u0]
  %late = aten.slice.Tensor(%defaults, 0, 1, 8) : f32[7, u0]
  %stride = aten.slice.Tensor(%defaults, 0, 0, 8, 2) : f32[4, u0]
  %dynamic = aten.slice.Tensor(%defaults, 1, 0, %n) : f32[8, u0]
  %negative = aten.slice.Tensor(%defaults, 0, 0, -1) : f32[7, u0]
  %symbolic = aten.slice.Tensor(%defaults, 1, 0, 1000) : f32[8, Min(1000, u0)]
  output((%short, %late, %stride, %dynamic, %negative, %symbolic))
)") == R"(%x = placeholder
%n = placeholder
%short = aten.slice.Tensor(%x, 0, 0, 7)
%late = aten.slice.Tensor(%x, 0, 1, 8)
%stride = aten.slice.Tensor(%x, 0, 0, 8, 2)
%dynamic = aten.slice.Tensor(%x, 1, 0, %n)
%negative = aten.slice.Tensor(%x, 0, 0, -1)
%symbolic = aten.slice.Tensor(%x, 1, 0, 1000)
output((%short, %late, %stride, %dynamic, %negative, %symbolic))
)");
}

TEST_CASE("a write through a removed view is a write to what it was a view of") {
  CHECK(canonical_code(R"(
  %x = placeholder : f32[4]
  %v = aten.view.default(%x, [4]) : f32[4]
  %w = aten.add_.Tensor(%v, 1) : f32[4]
  %y = aten.relu.default(%x) : f32[4]
  output((%y,))
)") == R"(%x = placeholder
%w = aten.add_.Tensor(%x, 1)
%y = aten.relu.default(%x)
output((%y,))
)");
}

TEST_CASE("nested graphs are canonicalised too") {
  CHECK(canonical_code(R"(
  %x = placeholder : f32[4]
  %score = get_attr[score] attr=graph(score)
  %y = my.apply(%x, %score)
  output((%y,))

graph score
  %s = placeholder : f32[]
  %d = aten.detach.default(%s) : f32[]
  output(%d)
)") == R"(%x = placeholder
%score = get_attr attr=graph(score)
%y = my.apply(%x, %score)
output((%y,))
graph score
%s = placeholder
output(%s)
)");
}

TEST_CASE("records say what was merged and what was specialized") {
  const Graph result = canonicalize(parse_test_graph(R"(
output other

graph
  %x = placeholder : f32[4] from(dce kept %x)
  %a = aten.detach.default(%x) : f32[4] from(dce kept %a)
  %b = aten.view.default(%a, [4]) : f32[4] from(dce kept %b)
  %c = aten.view.default(%b, [2, 2]) : f32[2, 2] from(dce kept %c)
  %d = aten.view.default(%c, [4]) : f32[4]
  output((%d,))
)"));
  CHECK(print_records(result, "x") == "dce kept x\ncanonicalize merged x a b\n");
  CHECK(print_records(result, "c") == "canonicalize specialized c\n");
  CHECK(print_records(result, "d") == "canonicalize specialized d\n");
}

}  // namespace
}  // namespace epweave
