// The order of one region's body: which nodes go before, between and behind the token exchanges.
//
// For each part, the closure of exchange k is what must have executed before it is launched. The
// parts take turns (forward 0, 1, ..., backward from the last to 0): closure k and launch k of
// each, then every node of any part that is ready without waiting for communication ("filler").
// What is left follows the last exchange. docs/scheduling.md has a picture.
//
// A wave of filler sees only what was emitted before the wave began, so that the parts advance
// together.
#pragma once

#include <string>
#include <vector>

#include "passes/overlap_ep/overlap_ep_region.h"

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

// The region is one of those of `step`; its parts have the same exchanges, one at least. Throws
// PassError.
RegionSchedule plan_phases(StepDependences& step, const EpRegion& region, FirstExchange first);

// Why a node is where it is, for its provenance: "fills the time of exchange 0 (dispatch)".
std::string describe_phase(const Graph& graph, const EpRegion& region, const Phase& phase);

}  // namespace epweave
