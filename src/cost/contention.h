// A step on a clock whose rates depend on what runs at the same time (Cluster::compute_rate,
// comm_rate, share_links).
#pragma once

#include <span>
#include <vector>

#include "cost/simulate.h"

namespace epweave {

// Fills start and end of every place; the makespan. With rates of 1 the times are those of the
// simulation without contention.
double run_contended(const StepModel& model, std::span<const Place> order, std::vector<Interval>& times);

}  // namespace epweave
