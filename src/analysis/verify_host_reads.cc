#include <fmt/format.h>

#include "analysis/host_copy.h"
#include "analysis/verify.h"
#include "analysis/verify_report.h"

namespace epweave {

void verify_host_reads(const Graph& graph, std::vector<Violation>& out) {
  for (const Body& body : graph.bodies) {
    const Effects effects(*graph.context, body);
    visit_early_reads(effects, body, body.order, [&](NodeId copy, NodeId reader) {
      report(graph, body, body.nodes[reader], "host-reads",
             fmt::format("reads %{} before anything made the host wait for the copy",
                         graph.text(body.nodes[copy].name)),
             out);
    });
  }
}

}  // namespace epweave
