// A predicted step beside a measured one of the same order: `simulate --measured TIMELINE.json`,
// the file that `epweave-replay run --timeline` writes (docs/gpu.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/report.h"
#include "cost/simulate.h"

namespace epweave::cli {

// All times are seconds.
struct MeasuredRank {
  std::uint32_t rank = 0;
  double makespan = 0;  // from the start of its first span to the end of its last
  double compute = 0, comm = 0, exposed = 0, idle = 0;
  std::size_t unmeasured = 0;  // nodes with a price and without a span
  bool is_whole = true;        // all ranks ran at the same time, and all collectives have spans
};

struct MeasuredOp {
  std::string op;
  std::size_t nodes = 0;
  double predicted = 0, measured = 0;
};

struct MeasuredCollective {
  Place launch = kNoPlace;
  double exposed = 0, seconds = 0;
};

struct MeasuredStep {
  std::string file, device;
  std::vector<MeasuredRank> ranks;  // in the order of the file
  // Of one rank, the graph's where it was measured:
  std::uint32_t rank = 0;
  std::vector<MeasuredOp> ops;                  // those that are furthest off first
  std::vector<MeasuredCollective> collectives;  // in the order of their starts
};

// Throws InputError naming `path`: no timeline, or that of another graph.
MeasuredStep read_measured_step(const std::string& path, const Graph& graph, const StepModel& model);

// By how much of the measured makespan the prediction is off: 0.1 is 10 % too long. None where no
// whole step was measured: `--measure-rank` has the other ranks' turns between the spans.
std::optional<double> makespan_error(double predicted, const MeasuredRank& rank);

Json measured_report(const Graph& graph, const StepModel& model, const MeasuredStep& step,
                     const OverlapSums& predicted);
std::string measured_text(const MeasuredStep& step, const OverlapSums& predicted);

}  // namespace epweave::cli
