// Stretches of a rank's steps that a device can be given as a whole, as one CUDA graph.
//
// A stretch is a maximal run of steps from one kernel to another, on the compute stream, between
// which the host neither waits for the device nor hands it bytes, and no collective is launched or
// waited for. So all sizes in it are known before it begins: what the host learns, it learns where
// it waits.
//
//   graph  0: 3 launches, until a collective is launched
//   launch %y = aten.mm.default on compute
//   host   %v = aten.view.default
//   launch %z = aten.relu.default on compute
//   free   %y
//   launch %p = aten.neg.default on compute
//   end    0
//   record e0 on compute
//
// Collectives stay outside: what a graph holds is one thing in the order of its stream, so a
// collective whose operand is made in the middle of a graph would start at the graph's end. With
// stretches they start when they do without.
#pragma once

#include <functional>

#include "replay/steps/steps.h"

namespace epweave::replay {

struct Stretch {
  std::uint32_t first = 0, end = 0;  // of Steps::list
  std::uint32_t launches = 0;        // steps that launch kernels; each is one kernel or several
  std::string_view cut;              // why it goes no further
};

// Why the host waits inside the call of a node, or hands bytes over; empty if it does neither.
using FindHostWait = std::function<std::string_view(const Node& node)>;

std::vector<Stretch> plan_stretches(const Body& body, const Steps& steps, const FindHostWait& find_host_wait);

// print_steps() with the stretches marked.
std::string print_stretches(const std::string& steps, const std::vector<Stretch>& stretches);

}  // namespace epweave::replay
