#include "passes/dce.h"

#include <catch2/catch.hpp>

#include "passes/test_text.h"
#include "pipeline/runner.h"

namespace epweave {
namespace {

TEST_CASE("asynchronous assertions and their chains vanish", "[A12]") {
  const Graph graph = parse_test_graph(R"(
output other

graph
  %x = placeholder : f32[4]
  %le = aten.le.Scalar(%x, 5) : b8[4]
  %all = aten.all.default(%le) : b8[]
  %_assert = aten._assert_async.msg(%all, "too large")
  %neg = aten.neg.default(%x) : f32[4]
  output((%neg,))
)");
  CHECK(print_code(dce(graph)) == R"(%x = placeholder
%neg = aten.neg.default(%x)
output((%neg,))
)");
}

TEST_CASE("calls with effects stay, dead pure calls go", "[I3]") {
  const Graph graph = parse_test_graph(R"(
output other

graph
  %x = placeholder : f32[4, 3]
  %w = placeholder : f32[4, 3]
  %copied = aten.copy_.default(%x, %w) : f32[4, 3]
  %mm = aten.mm.default(%x, %w)
  %dead = aten.neg.default(%mm)
  %unknown = my.unknown_op(%x)
  %gather = _c10d_functional.all_gather_into_tensor.default(%w, 2, "0") : f32[8, 3]
  %wait = _c10d_functional.wait_tensor.default(%gather) : f32[8, 3]
  %unwaited = _c10d_functional.all_gather_into_tensor.default(%w, 2, "0") : f32[8, 3]
  output((%x,))
)");
  CHECK(print_code(dce(graph)) == R"(%x = placeholder
%w = placeholder
%copied = aten.copy_.default(%x, %w)
%unknown = my.unknown_op(%x)
%gather = _c10d_functional.all_gather_into_tensor.default(%w, 2, "0")
%wait = _c10d_functional.wait_tensor.default(%gather)
output((%x,))
)");
}

TEST_CASE("a node that binds a used symbol stays") {
  const Graph graph = parse_test_graph(R"(
symbol u0
symbol u1
output other

graph
  %x = placeholder : f32[4]
  %n = aten._local_scalar_dense.default(%x) : SymInt(u0) bind(u0)
  %m = aten._local_scalar_dense.default(%x) : SymInt(u1) bind(u1)
  %y = my.unknown_op(%x) : f32[u0 + 1]
  output((%y,))
)");
  CHECK(print_code(dce(graph)) == R"(%x = placeholder
%n = aten._local_scalar_dense.default(%x)
%y = my.unknown_op(%x)
output((%y,))
)");
}

TEST_CASE("nested graphs lose dead nodes, and go when nothing names them") {
  const Graph graph = parse_test_graph(R"(
output other

graph
  %x = placeholder : f32[4]
  %score = get_attr[score] attr=graph(score)
  %unused = get_attr[mask] attr=graph(mask)
  %y = my.apply(%x, %score)
  output((%y,))

graph score
  %s = placeholder : f32[]
  %dead = aten.neg.default(%s) : f32[]
  %inner = get_attr[inner] attr=graph(inner)
  %t = my.apply(%s, %inner)
  output(%t)

graph mask
  %m = placeholder : f32[]
  output(%m)

graph inner
  %i = placeholder : f32[]
  output(%i)
)");
  const Graph result = dce(graph);
  CHECK(print_code(result) == R"(%x = placeholder
%score = get_attr attr=graph(score)
%y = my.apply(%x, %score)
output((%y,))
graph score
%s = placeholder
%inner = get_attr attr=graph(inner)
%t = my.apply(%s, %inner)
output(%t)
graph inner
%i = placeholder
output(%i)
)");
  CHECK(same_code(result, dce(result)));
}

}  // namespace
}  // namespace epweave
