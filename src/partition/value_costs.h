// What it costs to save each forward value, and to compute it again.
//
//   bytes     of the storage that the value owns. A view owns none: its base is saved. What waits
//             for a collective owns what the collective made
//   seconds   of the kernel, by the cluster's prices (cost/step_model.h). What forward need not
//             compute costs none: it is computed once, in the one half or in the other
//   gathered  whole parameters, at the end of their unshard chain: whether to gather them again is
//             a decision of its own, `reshard`
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cost/cluster.h"
#include "partition/cut.h"

namespace epweave {

enum class Regather : std::uint8_t { kAlways, kNever };

struct ValueCosts {
  std::vector<std::int64_t> bytes;  // by node; 0 where `base` is another
  std::vector<double> seconds;      // of the call
  std::vector<std::int64_t> flops;
  std::vector<NodeId> base;               // whose storage the value shows; itself where it owns it
  std::vector<std::uint8_t> is_state;     // an input of the step, or shows one: costs nothing
  std::vector<std::uint8_t> in_unshard;   // in the chain from a sharded parameter to the whole one
  std::vector<std::uint8_t> is_gathered;  // the whole parameter, and what shows it
};

ValueCosts price_values(const Graph& graph, const Joint& joint, const Cluster& cluster);

// What a cut holds between forward and backward, each storage once, and does again.
struct CutTotals {
  std::int64_t bytes = 0;     // without inputs of the step
  std::int64_t gathered = 0;  // of them whole parameters
  double seconds = 0;         // of kernels computed again, unshard chains apart
  std::int64_t flops = 0;
};
CutTotals add_up(const Graph& graph, const Cut& cut, const ValueCosts& costs);

}  // namespace epweave
