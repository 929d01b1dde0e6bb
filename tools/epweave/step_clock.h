// A step on the simulator's clock, and what of it a page can show: a bounded number of bars for any
// graph.
#pragma once

#include <string>
#include <vector>

#include "commands.h"
#include "cost/exposure.h"
#include "cost/simulate.h"

namespace epweave::cli {

// The step with its prices. Throws PassError simulate.unpriced, unless such calls are free, and
// InputError for a file of costs that is no such file, or of another graph.
StepModel price_step(const Graph& graph, const Cluster& cluster, const Pricing& pricing);

// A simulated step; calls without a price are free. The graph must outlive it.
class StepClock {
 public:
  StepClock(const Graph& graph, const Cluster& cluster, const MeasuredCosts* costs = nullptr);
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  const Graph& graph() const { return graph_; }
  const StepModel& model() const { return model_; }
  const OverlapSums& sums() const { return sums_; }
  const std::vector<CollectiveExposure>& collectives() const { return collectives_; }
  std::int64_t peak_bytes() const { return peak_bytes_; }
  std::span<const Place> kernels() const { return simulator_.kernels(); }
  double start(Place place) const { return simulator_.start(place); }
  double end(Place place) const { return simulator_.end(place); }
  NodeId node(Place place) const { return model_.nodes[place]; }

 private:
  const Graph& graph_;
  StepModel model_;
  Simulator simulator_;
  OverlapSums sums_;
  std::vector<CollectiveExposure> collectives_;
  std::int64_t peak_bytes_ = 0;
};

// What a stretch of a stream is coloured by.
enum class BarKind : std::uint8_t { kCompute, kOtherCollective, kExchange };

// Seconds from the start of the step.
struct Bar {
  double start = 0, end = 0;
  BarKind kind = BarKind::kCompute;
  std::int32_t part = -1;  // of what was divided
  Place place = kNoPlace;  // the longest node in it
  double longest = 0;      // its seconds
  std::size_t nodes = 1;
};

struct Stream {
  std::string name;  // "compute", or the name of the group
  std::vector<Bar> bars;
  std::vector<Bar> exposed;  // of a group: stretches in which it communicates and nothing computes
};

// The streams between two times. Bars shorter than a `steps`-th of the stretch are drawn together
// with what is next to them, so that a list of bars is not much longer than `steps`.
std::vector<Stream> draw_streams(const StepClock& clock, double from, double to, int steps);

}  // namespace epweave::cli
