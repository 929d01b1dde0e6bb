#include <catch2/catch.hpp>

#include "ir/text/text.h"
#include "replay/check/check.h"
#include "replay/kernels/host/kernels.h"

namespace epweave::replay {

TEST_CASE("a reshape that is recorded as a copy is one, though an extent of 1 would allow a view") {
  const Graph graph = parse_text(R"(epweave text 1
symbol s0 range=[1, 8] hint=1
graph
  %x = placeholder : f32[s0, 1]
  %wide = aten.expand.default(%x, [-1, 8]) : f32[s0, 8]{1, 0}
  %rows = aten.reshape.default(%wide, [-1, 4]) : f32[2*s0, 4]
  %written = aten.mul_.Tensor(%rows, 2.0) : f32[2*s0, 4]
  output([%written, %x])
)",
                                 "test");
  const KernelTable kernels = make_cpu_kernels();
  const CheckReport report = check_graphs(graph, graph, {.kernels = kernels, .ranks = 1, .data = 3});
  CHECK(report.conclusion() == CheckReport::Conclusion::kSame);  // else the run stops there
}

}  // namespace epweave::replay
