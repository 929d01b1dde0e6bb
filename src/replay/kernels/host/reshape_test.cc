#include <catch2/catch.hpp>

#include "ir/text/text.h"
#include "replay/check/check.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay {
namespace {

CheckReport::Conclusion conclusion_of(const char* a, const char* b) {
  const KernelTable kernels = make_cpu_kernels();
  return check_graphs(parse_text(a, "a"), parse_text(b, "b"), {.kernels = kernels, .ranks = 1, .data = 3})
      .conclusion();
}

}  // namespace

TEST_CASE("a reshape that is recorded as a copy is one, though an extent of 1 would allow a view") {
  const char* const graph = GENERATE(R"(epweave text 1
symbol s0 range=[1, 8] hint=1
graph
  %x = placeholder : f32[s0, 1]
  %wide = aten.expand.default(%x, [-1, 8]) : f32[s0, 8]{1, 0}
  %rows = aten.reshape.default(%wide, [-1, 4]) : f32[2*s0, 4]
  %written = aten.mul_.Tensor(%rows, 2.0) : f32[2*s0, 4]
  output([%written, %x])
)",
                                     R"(epweave text 1
symbol s0 range=[1, 8] hint=1
graph
  %x = placeholder : f32[s0, 1]
  %wide = aten.expand.default(%x, [-1, 2]) : f32[s0, 2]{1, 0}
  %rows = aten.reshape.default(%wide, [-1, 1]) : f32[2*s0, 1]
  %written = aten.mul_.Tensor(%rows, 2.0) : f32[2*s0, 1]
  output([%written, %x])
)");
  CHECK(conclusion_of(graph, graph) == CheckReport::Conclusion::kSame);  // else the run stops there
}

TEST_CASE("a reshape with an extent of 1 is a view where its larger extents have the recorded strides") {
  const char* const doubled = R"(epweave text 1
graph
  %x = placeholder : f32[1, 8]
  %a = aten.neg.default(%x) : f32[1, 8]
  %b = aten.mul.Tensor(%a, 2.0) : f32[1, 8]
  output([%b])
)";
  // The view is written, and what it is a view of is read.
  CHECK(conclusion_of(doubled, R"(epweave text 1
graph
  %x = placeholder : f32[1, 8]
  %a = aten.neg.default(%x) : f32[1, 8]
  %rows = aten.reshape.default(%a, [2, 4]) : f32[2, 4]
  %written = aten.mul_.Tensor(%rows, 2.0) : f32[2, 4]
  output([%a])
)") == CheckReport::Conclusion::kSame);
  // The extent of 1 has the stride 8, where 1 is recorded.
  CHECK(conclusion_of(doubled, R"(epweave text 1
graph
  %x = placeholder : f32[1, 8]
  %a = aten.neg.default(%x) : f32[1, 8]
  %column = aten.t.default(%a) : f32[8, 1]{1, 8}
  %rows = aten.reshape.default(%column, [8, 1]) : f32[8, 1]
  %written = aten.mul_.Tensor(%rows, 2.0) : f32[8, 1]
  output([%a])
)") == CheckReport::Conclusion::kSame);
}

}  // namespace epweave::replay
