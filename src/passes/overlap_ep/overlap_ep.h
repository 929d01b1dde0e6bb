// overlap-ep: hides the token exchanges of one part of a chunked MoE region behind the compute of
// the others.
//
// Reorders, nothing else: the same nodes with the same arguments in another order, but for the
// `non_blocking` flags of the copies that bring token counts to the host (all but the last go
// without waiting) and the label of the exchanges' waits. Forward, one MoE region, parts 0 and 1,
// `d` and `c` the dispatch and combine launches:
//
//   before  router0 d0 shared0 wait-d0 experts0 c0 wait-c0 router1 d1 shared1 wait-d1 experts1 c1
//           wait-c1
//   after   router0 router1 d0 d1 shared0 shared1 wait-d0 experts0 c0 wait-d1 experts1 c1 wait-c0
//           wait-c1
//
// collect (analysis/ep_regions.h) -> check the exchanges -> phases (overlap_ep_phases.h) -> one
// stable sort of the body under the phases of all regions, or the order with the fewest moves
// (overlap_ep_movement.h) -> proof that the order is legal (analysis/order.h).
//
// Numerics: reorder (bitwise by construction).
//
// Provenance: a node is `moved` if it is not in the longest common subsequence of the old and the
// new order; a copy whose flag changed is `specialized`. Other nodes keep their records as they
// are.
//
// Refusals: PassError "overlap-ep.NAME", the id of the specification (S-1 ...) in the message. What
// a sound graph (analysis/verify.h) cannot do wrong is checked as an invariant: S-1, S-4, S-10 to
// S-12, S-17, S-18.
#pragma once

#include <string>
#include <vector>

#include "passes/pass.h"

namespace epweave {

enum class PairFirst : std::uint8_t {
  kAuto,  // pair, unless the root is a whole block ("layers.3")
  kYes,   // the first exchanges of both parts are launched back to back
  kNo,    // part by part: the first part's exchange runs while the second part still computes what it sends
};

enum class Movement : std::uint8_t {
  kDelay,    // nodes are only delayed, as torchtitan does
  kMinimal,  // as few nodes move as the phases allow (overlap_ep_movement.h)
};

struct OverlapEpOptions {
  std::vector<std::string>
      roots;  // which regions, by the pattern of their root (analysis/module_path.h); none: all
  PairFirst pair_first = PairFirst::kAuto;
  Movement movement = Movement::kDelay;
  bool require_exchange = true;  // decline a graph without a region to schedule
  bool validate_only = false;    // make the schedule and prove it, but return the graph as it was
};

PassResult overlap_ep(const Graph& graph, const OverlapEpOptions& options);

}  // namespace epweave
