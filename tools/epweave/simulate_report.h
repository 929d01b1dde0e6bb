// What `simulate` says of a step, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/report.h"
#include "cost/bounds.h"
#include "cost/exposure.h"
#include "cost/live_bytes.h"
#include "cost/simulate.h"
#include "measured_step.h"

namespace epweave::cli {

struct Simulation {
  std::string file;          // as the command line has it
  std::string graph, costs;  // names of files for people; no costs: ""
  StepModel model;
  OverlapSums sums;
  PeakMemory peak;
  StepBounds bounds;                    // over all legal orders
  double recompute_behind_forward = 0;  // the larger bound that keeps recomputation there
  std::vector<CollectiveExposure> collectives;
  std::optional<MeasuredStep> measured;  // what it is compared with
};

Json simulation_report(const Graph& graph, const Simulation& simulation);
std::string simulation_text(const Graph& graph, const Simulation& simulation);

Json cluster_report(const Cluster& cluster);  // all parameters, as changed

// What the figures rest on and nothing proves, a line each.
std::vector<std::string> list_assumptions(const Graph& graph, const Simulation& simulation);

}  // namespace epweave::cli
