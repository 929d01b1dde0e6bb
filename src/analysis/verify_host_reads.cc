#include <fmt/format.h>

#include "analysis/host_copy.h"
#include "analysis/verify.h"
#include "analysis/verify_report.h"

namespace epweave {
namespace {

// Also a list, some of whose elements may be.
bool may_be_on_host(const Context& context, const Node& node) {
  if (!node.type) return false;
  const TypeKind kind = context.types[node.type].kind;
  return kind == TypeKind::kTuple || kind == TypeKind::kList || is_on_host(context, node);
}

// Whether anything in the host's memory is read while the host has not waited for a copy. Nearly
// all orders read nothing then, so that whose storage is whose need not be found out.
bool reads_before_waiting(const Context& context, const Body& body) {
  bool is_copying = false;
  for (NodeId id : body.order) {
    const Node& node = body.nodes[id];
    bool reads_on_host = false;
    if (is_copying && reads_elements(node))
      for_each_input(context, node,
                     [&](NodeId input) { reads_on_host |= may_be_on_host(context, body.nodes[input]); });
    if (reads_on_host) return true;
    const HostEvent event = host_event_of(context, body, node);
    if (event != HostEvent::kNone) is_copying = event == HostEvent::kCopy;
  }
  return false;
}

}  // namespace

void verify_host_reads(const Graph& graph, std::vector<Violation>& out) {
  for (const Body& body : graph.bodies) {
    if (!reads_before_waiting(*graph.context, body)) continue;
    const Effects effects(graph, body);
    visit_early_reads(effects, body, body.order, [&](NodeId copy, NodeId reader) {
      report(graph, body, body.nodes[reader], "host-reads",
             fmt::format("reads %{} before anything made the host wait for the copy",
                         graph.text(body.nodes[copy].name)),
             out);
    });
  }
}

}  // namespace epweave
