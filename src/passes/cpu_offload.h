// Keeps saved values on the host between forward and backward.
//
//   %x = relu(%y)          MUST_CPU_OFFLOAD      %x = relu(%y)
//                                                %o = ao.offload(%x)
//   ...                                          ...
//                                                %h = ao.wait_tensor(%o, %x, %last)    frees %x behind its last reader
//   ...                                          ...
//                                                %r = ao.reload(%h, cuda:0, [..], [..])       bwd
//   ...                                          ...
//                                                %b = ao.wait_tensor(%r, %h)                  bwd
//   %g = mul(%d, %x)       bwd                   %g = mul(%d, %b)                             bwd
//
// Views between the value and its backward readers are done again behind the reload. Waits of
// forward move to the end of the region (a run of calls of one layer) that is `defer` behind the
// value's, but not in front of its last reader. Reloads move in front of the first backward call of
// the layer whose backward comes `prefetch` layers earlier, or in front of all of backward; their
// waits stay. All as torchtitan does it, but for the refusal of a tagged view and for values that
// something else would find changed or freed: whose storage is written behind them (%x = relu(%y);
// add_(%x, 1)), which the step returns, or which forward reads behind backward's first read. Those
// stay on the device, with a note.
#pragma once

#include <cstdint>
#include <string>

#include "passes/pass.h"

namespace epweave {

struct CpuOffloadOptions {
  std::int64_t prefetch = 1, defer = 1;
};

PassResult cpu_offload(const Graph& graph, const CpuOffloadOptions& options);

// Tags what is worth it, for memory-policy: values of forward calls in layers, but in the last
// layer only if it is the only one; tensors that own their storage, are contiguous, have 4 KiB or
// more, and that backward keeps. The largest first, while `gib` lasts (0: no limit). Returns a
// note.
std::string tag_for_offload(Graph& graph, double gib);

}  // namespace epweave
