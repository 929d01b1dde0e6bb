// The order of one region's body: which nodes go before, between and behind the token exchanges.
//
// For each part, the closure of exchange k is what must have executed before it is launched. The parts take
// turns (forward 0 then 1, backward 1 then 0): closure k and launch k of each, then every node of either part
// that is ready without waiting for communication ("filler"). What is left follows the last exchange.
//
// A wave of filler sees only what was emitted before the wave began, so that the parts advance together.
#pragma once

#include <string>
#include <vector>

#include "analysis/effects.h"
#include "analysis/ep_regions.h"
#include "analysis/users.h"

namespace epweave {

enum class PhaseKind : std::uint8_t {
  kNeeded,      // what exchange k needs, and its launch where that is not a phase of its own
  kBeforeCopy,  // what the token-count copies to the host need
  kCopy,
  kAfterCopy,
  kLaunch,
  kFiller,
  kTail,
};

struct Phase {
  PhaseKind kind = PhaseKind::kTail;
  std::uint32_t exchange = 0;
  std::vector<NodeId> nodes;
};

struct CopyFlag {
  NodeId copy;
  bool non_blocking = false;
};

struct RegionSchedule {
  std::vector<Phase> phases;
  std::vector<CopyFlag> copies;
};

enum class FirstExchange : std::uint8_t { kPaired, kGated };

// What a schedule is computed from, the same for all regions of a graph.
class PhasePlanner {
 public:
  // `inputs` are list_inputs of the step, `edges` the order its effects force.
  PhasePlanner(const Graph& graph, const std::vector<EpRegion>& regions, const NodeLists& inputs,
               std::span<const OrderEdge> edges);

  // The region is one of those given; it has two parts with the same exchanges. Throws PassError.
  RegionSchedule plan(const EpRegion& region, FirstExchange first);

 private:
  friend class RegionGraph;
  static constexpr std::uint32_t kNone = ~0U;

  const Graph& graph_;
  const NodeLists& inputs_;
  NodeLists effects_;                          // nodes that must precede each node for their effects
  IdVector<NodeId, std::uint32_t> positions_;  // in the present order
  IdVector<NodeId, const EpRegion*> owner_;    // of body nodes
  IdVector<NodeId, std::uint32_t> local_;      // scratch: number in the region at work, kNone between regions
};

// Why a node is where it is, for its provenance: "fills the time of exchange 0 (dispatch)".
std::string describe_phase(const Graph& graph, const EpRegion& region, const Phase& phase);

// PassError "overlap-ep.NAME" about a node; `spec` is the id of the specification, or empty.
struct Refusal {
  const char* name;
  const char* spec;
  const char* remedy;
};
[[noreturn]] void decline(const Graph& graph, NodeId node, const Refusal& refusal,
                          const std::string& problem);

}  // namespace epweave
