// What a step asks of the machine, of one rank: flops, bytes, and about how long it takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cost/measured_costs.h"
#include "ir/graph.h"

namespace epweave::replay {

// Assumed, in a second; docs/replay.md has the table.
struct Rates {
  double products = 0;       // flops of products of 16-bit floats that the library has in native math
  double wide_products = 0;  // of float32 and float64
  double flops = 0;          // of all else, attention of other floats too
  double bytes = 0;
  double network = 0;    // bytes of a collective
  double launch = 0;     // seconds of each kernel
  double attention = 0;  // flops of attention of 16-bit floats on tensor cores; 0: there are none
};

struct StepWork {
  std::int64_t flops = 0, bytes = 0;  // of kernels (cost/cost.h)
  std::int64_t messages = 0;          // bytes of collectives
  std::size_t kernels = 0;
  std::size_t measured = 0;  // kernels and collectives that the costs have
  double seconds = 0;        // one after the other
};

// `costs`: null, or measured times, which go before the rates.
StepWork find_step_work(const Graph& graph, const Rates& rates, const MeasuredCosts* costs);

}  // namespace epweave::replay
