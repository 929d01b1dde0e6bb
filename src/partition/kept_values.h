// A step as it stands: which forward values its backward reads, and which calls do in backward
// again what forward did.
//
//   %silu = silu(%mm)                   forward
//   %silu_recomputed = silu(%mm)   bwd  done again: %mm is kept from forward to backward, %silu is not
//   %mul = mul(%g, %silu_recomputed) bwd
//
// Seeds are given to backward, and are no values of forward. Elements of a forward call's tuple are
// forward's, wherever they are taken.
#pragma once

#include "partition/value_costs.h"

namespace epweave {

struct KeptValues {
  Cut cut;  // what is kept, in the order of forward; the copies in backward
  ValueCosts costs;
  CutTotals totals;
};

// Nothing is kept where no call is backward's.
KeptValues find_kept_values(const Graph& graph, const Cluster& cluster);

}  // namespace epweave
