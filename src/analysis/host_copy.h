// Copies from the device to the host: `_to_copy(x, device=cpu)` and `copy_(y_on_host, x)`.
//
// A blocking one makes the host wait for the device. A non-blocking one returns at once, and what it wrote may
// be read only behind something that made the host wait.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace epweave {

struct HostCopy {
  bool is_blocking = true;
};

// None: the node is no such copy.
std::optional<HostCopy> find_host_copy(const Context& context, const Body& body, const Node& node);

// Whether the node's value is a tensor in the host's memory.
bool is_on_host(const Context& context, const Node& node);

}  // namespace epweave
