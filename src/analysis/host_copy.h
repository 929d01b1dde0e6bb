// Copies from the device to the host: `_to_copy(x, device=cpu)` and `copy_(y_on_host, x)`.
//
// A blocking one makes the host wait for the device. A non-blocking one returns at once, and what
// it wrote may be read only behind something that made the host wait.
//
//   h = _to_copy(x, device=cpu, non_blocking=True);  n = item(h)                         n reads too early
//   h = _to_copy(x, device=cpu, non_blocking=True);  g = _to_copy(y, device=cpu);  n = item(h)    it does not
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "analysis/effects.h"
#include "ir/graph.h"

namespace epweave {

struct HostCopy {
  bool is_blocking = true;
};

// None: the node is no such copy.
std::optional<HostCopy> find_host_copy(const Context& context, const Body& body, const Node& node);

// Whether the node's value is a tensor in the host's memory.
bool is_on_host(const Context& context, const Node& node);

// Whether the call makes the host wait for the device by what it is, copies aside: it reads a
// number off it.
bool makes_host_wait(const Context& context, const Body& body, const Node& node);

// What a call is for the host's memory: it begins a copy that may still be on its way, or the host
// waits for all of them.
enum class HostEvent : std::uint8_t { kNone, kCopy, kWait };
HostEvent host_event_of(const Context& context, const Body& body, const Node& node);

// Calls visit(copy, reader) where a node reads what a non-blocking copy wrote, and nothing between
// the two made the host wait. `order` has at least the copies, their readers and the nodes that
// make the host wait; `effects` are those of a body with the same nodes, in whichever order. What
// the step returns its caller reads; that counts where `with_output` says so.
template <class Visit>
void visit_early_reads(const Effects& effects, const Body& body, std::span<const NodeId> order,
                       const Visit& visit, bool with_output = false) {
  const Context& context = effects.context();
  std::map<NodeId, NodeId> copies;  // by storage: those that nothing has waited for
  for (NodeId id : order) {
    const Node& node = body.nodes[id];
    if (!copies.empty() && (reads_elements(node) || (with_output && node.kind == NodeKind::kOutput)))
      for_each_input(context, node, [&](NodeId input) {
        const auto copy = copies.find(effects.storage_of(input));
        if (copy != copies.end()) visit(copy->second, id);
      });
    const HostEvent event = host_event_of(context, body, node);
    if (event == HostEvent::kCopy) copies[effects.storage_of(id)] = id;
    if (event == HostEvent::kWait) copies.clear();
  }
}

}  // namespace epweave
