// Why a collective is exposed, and what could have hidden it.
//
//   ag = all_gather(p)  w = wait(ag)  y = mm(x, w)       launched-late: p was there all the time
//   a  = all_to_all(x)  w = wait(a)  k = mm(q, r)        waited-early: k needs nothing of it
//
// Of the orders that the step allows, one with less exposed may exist or not: cost/bounds.h says
// how much. This says what stands in the way in the order at hand.
#pragma once

#include <vector>

#include "cost/simulate.h"

namespace epweave {

enum class ExposureReason : std::uint8_t {
  kHidden,        // at least 99 % of it runs under kernels
  kDependence,    // no kernel that is independent of it was ready
  kQueue,         // its group was still busy with another collective
  kLaunchedLate,  // its operands were done and its group free long before
  kWaitedEarly,   // a kernel behind its wait is ready and needs nothing of it
  kMemory,        // launched earlier, its result would not have fit below the peak
  kNoCompute,     // every kernel comes before it or needs it
};
std::string_view name_of(ExposureReason reason);  // "dependence", ..; "" for kHidden

struct CollectiveExposure {
  Place launch = kNoPlace;
  double start = 0, end = 0, exposed = 0;
  ExposureReason reason = ExposureReason::kHidden;
  // The collective ahead, the kernel that it waited for, its wait, or who needs it first; none
  // where nothing needs it.
  Place blame = kNoPlace;
  Place hidden_by = kNoPlace;       // a kernel that could have run under it
  bool potentially_hidden = false;  // some kernel has no path to or from it
};

// Kernels are looked for among this many nodes in front of and behind a collective.
inline constexpr Place kExposureWindow = 4096;

// Of the simulator's last run, which was of `order`; in the order of Simulator::collectives().
std::vector<CollectiveExposure> explain_exposure(const StepModel& model, std::span<const Place> order,
                                                 Simulator& simulator);

}  // namespace epweave
