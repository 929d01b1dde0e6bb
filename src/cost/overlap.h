// What runs under each token exchange, and which exchanges nothing hides.
//
//   d0  d1  S0 S1  wait(d0)  experts0 ..  wait(d1)      d0: S0, S1 run under it
//                                                       d1: S0, S1, experts0; alone under it: experts0
//
// Under an exchange: the kernels issued between its launch and its wait. One process group carries
// one exchange at a time, so what is issued before the exchange ahead of it was waited for counts
// for that one, too; what is left runs under this one alone. An exchange with no kernel under it is
// exposed: the compute stream waits for it and for nothing else. That says where, not how long:
// there is no clock here.
#pragma once

#include <array>
#include <vector>

#include "analysis/ep_regions.h"
#include "cost/cost.h"

namespace epweave {

enum class Exposure : std::uint8_t {
  kHidden,      // kernels run under it
  kAllNeedIt,   // exposed: every kernel behind its wait in the region needs it
  kOthersHeld,  // exposed: those that do not need it need communication that is waited for behind it
  kCouldRun,    // exposed: a kernel behind its wait needs nothing that is in flight
};
std::string_view name_of(Exposure exposure);  // "hidden", "all-need-it", ...

struct OverlappedExchange {
  NodeId launch, wait;
  std::int32_t part = 0;
  std::uint32_t index = 0;                 // among its part's exchanges
  std::array<Work, kCostClasses> under{};  // by cost class; ops without a row count as memory
  Work alone;                              // of those, when its group had nothing else to carry
  Count message;                           // bytes, as cost/cost.h counts them
  Exposure exposure = Exposure::kHidden;
  NodeId witness;  // kOthersHeld, kCouldRun: the first kernel behind its wait that does not need it
  std::size_t witnesses = 0;

  Work total_under() const;
};

struct OverlappedRegion {
  StringId root;
  bool backward = false;
  std::size_t parts = 0;
  std::vector<OverlappedExchange> exchanges;  // in the order of their launches
};

// Token exchanges of modules that are not divided. Nothing of another part can run under them, but
// a schedule may issue other kernels between launch and wait.
struct UndividedExchanges {
  std::size_t count = 0;
  std::size_t exposed = 0;  // without a kernel under them, or without a wait
};

struct Overlaps {
  // With token exchanges, in the order of their first node; exchanges without a wait are left out.
  std::vector<OverlappedRegion> regions;
  UndividedExchanges undivided;
  std::size_t unlabelled = 0;  // all-to-alls of which no label says what they carry: in no count above
  std::size_t assumed = 0;     // symbols taken to be balanced
};
Overlaps find_overlaps(const Graph& graph);

}  // namespace epweave
